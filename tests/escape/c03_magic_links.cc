// Links of /proc lead around path names: the root and working directory of other processes, directories they have open.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// Whether the canary can be read below `directory`.
void Try(const std::string& directory, Tally* tally) {
  const int fd = ::open((directory + Canary("FILE")).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tally->Add(directory, -errno);
  char byte;
  tally->Add(directory, ::read(fd, &byte, 1) == 1 ? 0 : -errno);
  ::close(fd);
}

Observation Roots() {
  Tally tally;
  Try("/proc/self/root", &tally);
  Try("/proc/thread-self/root", &tally);
  Try("/proc/" + std::to_string(::getppid()) + "/root", &tally);
  return tally.Sum();
}

std::string Up(int levels) {
  std::string path;
  while (levels-- > 0) path += "/..";
  return path;
}

Observation Above() {
  Tally tally;
  Try(Up(64), &tally);
  Try("/proc/self/cwd" + Up(64), &tally);
  Try("/proc/" + std::to_string(::getppid()) + "/cwd" + Up(64), &tally);
  Try("/dev/fd/../../.." + Up(64), &tally);
  return tally.Sum();
}

// Every descriptor of every process that can be looked at: is one a directory from which the canary is reached?
Observation Descriptors() {
  // A forgotten descriptor; inside it refers to the sandbox's own root.
  const int forgotten = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  Tally tally;
  DIR* processes = ::opendir("/proc");
  if (processes == nullptr) return NotApplicable("no /proc");
  while (const struct dirent* process = ::readdir(processes)) {
    if (process->d_name[0] < '0' || process->d_name[0] > '9') continue;
    const std::string base = std::string("/proc/") + process->d_name;
    // On the host, only our own and the harness's.
    const int pid = std::atoi(process->d_name);
    if (IsControl() && pid != ::getpid() && pid != ::getppid()) continue;
    Try(base + "/root", &tally);
    Try(base + "/cwd" + Up(64), &tally);
    for (int fd = 0; fd < 64; ++fd) Try(base + "/fd/" + std::to_string(fd) + Up(64), &tally);
  }
  ::closedir(processes);
  ::close(forgotten);
  return tally.SumAny();
}

const Registration kRow(Row{
    .id = "C03",
    .title = "magic links: /proc/self/root, /proc/1/root, /proc/1/cwd, /proc/*/fd, ..",
    .severity = Severity::kHostLeak,
    .walls = {"mount namespace", "pivot_root", "pid namespace", "PID 1 is not dumpable"},
    .attempts = {{.name = "roots", .probe = Roots, .expect = {.errnos = {ENOENT, EACCES}}},
                 {.name = "above", .probe = Above, .expect = {.errnos = {ENOENT, EACCES}}},
                 {.name = "descriptors", .probe = Descriptors, .expect = {.errnos = {ENOENT, EACCES, ENOTDIR}}}},
});

}  // namespace

}  // namespace caisson::escape
