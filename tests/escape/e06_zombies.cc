// Zombies that are not reaped keep their process numbers. PID 1 inherits orphans and must reap them; the zombies of a
// living parent count against the limit.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

bool IsDead(pid_t pid) {
  const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] == 'Z';
}

// Waits until nothing of the process is left.
bool IsBuried(pid_t pid) {
  for (int tries = 0; tries < 1000; ++tries) {
    if (::access(("/proc/" + std::to_string(pid)).c_str(), F_OK) != 0) return true;
    ::usleep(10'000);
  }
  return false;
}

// Bare, the harness inherits the orphans and does not reap them before the row is over.
Observation Orphans() {
  constexpr int kMany = 200;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return NotApplicable("no pipe");
  std::vector<pid_t> orphans;
  for (int i = 0; i < kMany; ++i) {
    const pid_t parent = ::fork();
    if (parent < 0) return Escaped("no process can be made after " + std::to_string(i));
    if (parent == 0) {
      const pid_t orphan = ::fork();
      if (orphan == 0) ::_exit(0);
      ::_exit(::write(ends[1], &orphan, sizeof(orphan)) == sizeof(orphan) ? 0 : 1);
    }
    ::waitpid(parent, nullptr, 0);
    pid_t orphan = -1;
    if (::read(ends[0], &orphan, sizeof(orphan)) != sizeof(orphan) || orphan <= 0) break;
    orphans.push_back(orphan);
    // One at a time: on a busy machine PID 1 may be scheduled later than this process.
    if (!IsControl() && !IsBuried(orphan)) return Escaped(std::to_string(i) + " were buried, the next was not in 10 s");
  }
  if (orphans.size() < kMany) return Escaped("no process can be made after " + std::to_string(orphans.size()));
  size_t dead = 0;
  for (int tries = 0; tries < 40; ++tries) {
    dead = 0;
    for (const pid_t orphan : orphans) dead += IsDead(orphan) ? 1 : 0;
    if (dead == 0) return Blocked(0, "all were buried");
    ::usleep(25'000);
  }
  return Escaped(std::to_string(dead) + " lie about");
}

// Its own children.
Observation Unburied() {
  constexpr int kMany = 200;
  std::vector<pid_t> children;
  int error = 0;
  while (children.size() < kMany && error == 0) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    if (child < 0) error = errno;
    if (child > 0) children.push_back(child);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return error == 0 ? Escaped(std::to_string(kMany) + " zombies") : Blocked(error);
}

const std::vector<std::string> kLimit = {"--pids-limit", "64"};

const Registration kRow(Row{
    .id = "E06",
    .title = "zombies: orphans that are never reaped, children left unreaped",
    .severity = Severity::kSelfDenial,
    .walls = {"PID 1 reaps", "process limit"},
    .attempts = {{.name = "orphans", .probe = Orphans, .expect = {}, .flags = kLimit},
                 {.name = "unburied", .probe = Unburied, .expect = {.errnos = {EAGAIN}}, .flags = kLimit}},
});

}  // namespace

}  // namespace caisson::escape
