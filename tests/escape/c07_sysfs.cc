// /sys and what is mounted there: tracing, firmware, power, cgroups (release_agent: CVE-2022-0492).
//
// SAFETY: the controls look and open; they write nothing.
#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr char kThere[] = R"(
places = ('/sys', '/sys/kernel', '/sys/class', '/sys/firmware', '/sys/fs/cgroup', '/sys/fs/bpf', '/sys/kernel/debug',
          '/sys/kernel/tracing', '/sys/kernel/security', '/sys/devices/virtual/powercap', '/sys/module', '/sys/power',
          '/sys/block', '/cgroup', '/dev/cgroup', '/debug', '/config')
found = [place for place in places if os.path.lexists(place)]
if found: escaped(' '.join(found))
blocked(errno.ENOENT, 'no /sys')
)";

constexpr char kWritable[] = R"(
found = []
places = ['/sys/kernel/uevent_helper', '/sys/power/state', '/sys/kernel/debug/tracing/trace_marker',
          '/sys/kernel/profiling', '/sys/kernel/rcu_normal', '/sys/kernel/mm/transparent_hugepage/enabled']
for top in ('/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/memory', '/sys/fs/cgroup/pids'):
    places += [f'{top}/{name}' for name in ('cgroup.procs', 'release_agent', 'notify_on_release', 'tasks')]
for place in places:
    try: os.close(os.open(place, os.O_WRONLY))
    except OSError: continue
    found.append(place)
if found: escaped(' '.join(found))
blocked(errno.ENOENT, 'nothing can be opened')
)";

// A file system of that type at any place of the table.
constexpr char kMounted[] = R"(
kinds = {'sysfs', 'cgroup', 'cgroup2', 'debugfs', 'tracefs', 'securityfs', 'bpf', 'configfs', 'pstore', 'efivarfs',
         'binfmt_misc', 'fusectl', 'nfsd', 'mqueue', 'hugetlbfs', 'autofs', 'ramfs'}
table = [line.split(' - ')[1].split()[0] for line in pathlib.Path('/proc/self/mountinfo').read_text().splitlines()]
found = sorted(kinds & set(table))
if found: escaped(' '.join(found))
if 'proc' not in table: not_applicable('there is no table')
blocked(errno.ENOENT, 'none is mounted')
)";

const Registration kRow(Row{
    .id = "C07",
    .title = "/sys: tracing, firmware, power, cgroups and their release_agent",
    .severity = Severity::kEscape,
    .walls = {"no /sys", "mount namespace"},
    .attempts = {{.name = "there", .python = kThere, .expect = {.errnos = {ENOENT}}},
                 {.name = "writable",
                  .python = kWritable,
                  .control = {.reaches_kernel = true},
                  .expect = {.errnos = {ENOENT}, .reports = {{"FilesystemWriteViolation", "fs.write"}}}},
                 {.name = "mounted", .python = kMounted, .expect = {.errnos = {ENOENT}}}},
});

}  // namespace

}  // namespace caisson::escape
