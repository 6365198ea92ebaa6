// Tables of /proc that name what is outside: mounts, sockets, cgroups.
//
// A directory that the caller shows with --workspace or -v has its host path in the mount table: the kernel names a
// bind mount by where it comes from. So the table is looked at in a sandbox that was shown nothing.
#include <cerrno>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr char kMounts[] = R"(
shown = ('/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/etc/alternatives', '/etc/ld.so.cache',
         '/etc/java-17-openjdk')
found = []
for line in pathlib.Path('/proc/self/mountinfo').read_text().splitlines():
    before, after = line.split(' - ')
    root, point = before.split()[3:5]
    kind, device = after.split()[:2]
    if kind in ('tmpfs', 'proc', 'devpts'):
        # Our own: made for this sandbox, with no source.
        if device != 'none': found.append(f'{kind} {device}')
    elif kind == 'devtmpfs':
        if root not in ('/null', '/zero', '/full', '/random', '/urandom', '/tty'): found.append(f'{kind} {root}')
    elif root == '/' or not any(root.endswith(path) for path in shown): found.append(f'{kind} {root} on {point}')
if found: escaped('; '.join(found[:8]))
blocked(0, 'nothing of the host but /usr')
)";

// The canaries listen on the host.
constexpr char kSockets[] = R"(
port = '%04X' % int(canary('PORT'))
found = [name for name in ('tcp', 'udp') if ':' + port in pathlib.Path('/proc/net', name).read_text()]
if canary('ABSTRACT') in pathlib.Path('/proc/net/unix').read_text(): found.append('unix')
interfaces = [line.split(':')[0].strip() for line in pathlib.Path('/proc/net/dev').read_text().splitlines()[2:]]
if found: escaped(' '.join(found + interfaces))
if any(name != 'lo' for name in interfaces): partial(' '.join(interfaces))
blocked(0, 'no socket of the host')
)";

// Only as an observation: whether the host's own paths are "/" as well depends on the host.
constexpr char kGroups[] = R"(
paths = [line.split(':', 2)[2] for line in pathlib.Path('/proc/self/cgroup').read_text().splitlines()]
if any(path != '/' for path in paths): escaped(' '.join(paths))
blocked(0, 'all groups are called /')
)";

Judgement JudgeMounts(Host& host) {
  for (const char* id : {"C09/mounts", "C09/groups"}) {
    const auto bare = host.RunControl(id).Saw(id);
    if (!bare) return Vacuous("the tables cannot be read here");
    const bool groups = std::string(id) == "C09/groups";
    if (!groups && bare->seen != Seen::kEscaped) return Vacuous("the host's own table names nothing");
    const Outcome run = host.Run({.command = host.ProbeCommand(id), .with_probe = false});
    const auto inside = run.Saw(id);
    if (!inside) return Broken("the probe said nothing: " + run.process.err);
    if (inside->seen != Seen::kBlocked) return Broken(inside->detail);
  }
  return Held("the mount table names nothing of the host but /usr");
}

const Registration kRow(Row{
    .id = "C09",
    .title = "the host in tables of /proc: mountinfo, net/tcp, net/unix, net/dev, cgroup",
    .severity = Severity::kHostLeak,
    .walls = {"mount namespace", "pivot_root", "network namespace", "cgroup namespace"},
    .attempts = {{.name = "sockets", .python = kSockets, .expect = {}},
                 {.name = "mounts", .python = kMounts, .judge_only = true},
                 {.name = "groups", .python = kGroups, .judge_only = true}},
    .judge = JudgeMounts,
});

}  // namespace

}  // namespace caisson::escape
