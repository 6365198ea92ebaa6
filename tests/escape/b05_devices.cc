// Devices: making one, finding one, being handed one.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation Make() {
  Tally tally;
  const auto make = [&](const char* name, mode_t kind, unsigned major_number, unsigned minor_number) {
    const std::string path = WritableDirectory() + "/" + name;
    const long result = Call(SYS_mknodat, AT_FDCWD, path.c_str(), kind | 0600, makedev(major_number, minor_number));
    if (result == 0) ::unlink(path.c_str());
    tally.Add(name, result);
  };
  make("mem", S_IFCHR, 1, 1);
  make("tun", S_IFCHR, 10, 200);
  make("sda", S_IFBLK, 8, 0);
  make("vda", S_IFBLK, 254, 0);
  return tally.Sum();
}

constexpr char kList[] = R"(
harmless = {'null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx'}
found = []
for top, directories, files in os.walk('/dev'):
    for name in files:
        mode = os.lstat(os.path.join(top, name)).st_mode
        if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and name not in harmless: found.append(name)
if found: escaped(' '.join(sorted(found)[:20]))
if not os.path.exists('/dev/null'): not_applicable('there is no /dev at all')
blocked(errno.ENOENT, 'only harmless devices')
)";

// A device in a mounted directory: a harmless one, so that opening it only shows whether it is possible.
Observation Open() {
  const std::string path = IsControl() ? WritableDirectory() + "/zero" : "/opt/in/zero";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Blocked(errno);
  ::close(fd);
  return Escaped("opened a device");
}

Judgement JudgeMounted(Host& host) {
  if (::geteuid() != 0) return Vacuous("only root can hand in a device");
  const std::string directory = host.MakeDirectory();
  const std::string device = directory + "/zero";
  ::chmod(directory.c_str(), 0755);
  if (::mknod(device.c_str(), S_IFCHR | 0666, makedev(1, 5)) != 0) return Vacuous("no device can be made here");
  ::chmod(device.c_str(), 0666);
  if (const UniqueFd bare(::open(device.c_str(), O_RDONLY | O_CLOEXEC)); !bare)
    return Vacuous("devices cannot be opened in the harness's directory");
  const Outcome run = host.Run({.command = host.ProbeCommand("B05/open"), .flags = {"-v", directory + ":/opt/in"}});
  const auto inside = run.Saw("B05/open");
  if (!inside) return Broken("the probe said nothing: " + run.process.err);
  if (inside->seen != Seen::kBlocked || inside->error != EACCES) return Broken("mounted device: " + inside->detail);
  return Held("EACCES nodev");
}

const Registration kRow(Row{
    .id = "B05",
    .title = "devices: making one, finding one in /dev, one in a mount",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "own /dev", "nodev mounts", "user namespace"},
    .attempts = {{.name = "make",
                  .probe = Make,
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "fs.device", "mknodat"}}}},
                 {.name = "list", .python = kList, .expect = {.errnos = {ENOENT}}},
                 {.name = "open", .probe = Open, .judge_only = true}},
    .judge = JudgeMounted,
});

}  // namespace

}  // namespace caisson::escape
