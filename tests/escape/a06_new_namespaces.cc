// A user namespace of its own gives a process every capability there, and with them the part of the kernel that most
// privilege escalations of the last years came from.
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

struct Kind {
  const char* name;
  unsigned long flag;
  bool by_clone;
};

// A new time namespace cannot be asked of clone: its bit is part of the exit signal there.
constexpr Kind kKinds[] = {{"user", CLONE_NEWUSER, true},     {"mnt", CLONE_NEWNS, true},  {"pid", CLONE_NEWPID, true},
                           {"net", CLONE_NEWNET, true},       {"ipc", CLONE_NEWIPC, true}, {"uts", CLONE_NEWUTS, true},
                           {"cgroup", CLONE_NEWCGROUP, true}, {"time", 0x80, false}};

// Each in a child, so that one success does not help the next attempt.
Observation Unshare() {
  Tally tally;
  for (const Kind& kind : kKinds) {
    const Ended ended = InChild([&] { return static_cast<int>(-Call(SYS_unshare, kind.flag)); });
    tally.Add(kind.name, ended.code == 0 && ended.exited ? Escaped("") : Blocked(ended.code));
  }
  return tally.Sum();
}

Observation Clone() {
  Tally tally;
  for (const Kind& kind : kKinds) {
    if (!kind.by_clone) continue;
    const long child = Call(SYS_clone, kind.flag | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child == 0) ::_exit(0);
    if (child > 0) ::waitpid(static_cast<pid_t>(child), nullptr, 0);
    tally.Add(kind.name, child);
  }
  return tally.Sum();
}

const Registration kRow(Row{
    .id = "A06",
    .title = "a new namespace of each kind, by unshare and by clone",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    .attempts = {{.name = "unshare",
                  .probe = Unshare,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.ns", "unshare"}}}},
                 {.name = "clone",
                  .probe = Clone,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.ns", "clone"}}}}},
});

}  // namespace

}  // namespace caisson::escape
