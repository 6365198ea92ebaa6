// A tracer changes system calls after the filter has looked at them, and reads and writes all memory of its victim.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr long kSuspendSeccomp = 1 << 21;  // PTRACE_O_SUSPEND_SECCOMP

// A process that waits to be traced.
class Victim {
 public:
  Victim() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Victim() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, __WALL);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

Observation TraceMe() {
  const Ended ended = InChild([] { return static_cast<int>(-Call(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0)); });
  return ended.exited && ended.code == 0 ? Escaped("traced by the parent") : Blocked(ended.code);
}

Observation Attach() {
  const Victim child;
  return FromCall(Call(SYS_ptrace, PTRACE_ATTACH, child.pid(), 0, 0), "attached to a child");
}

Observation SeizeSibling() {
  const Victim sibling;
  const Ended ended = InChild([&] { return static_cast<int>(-Call(SYS_ptrace, PTRACE_SEIZE, sibling.pid(), 0, 0)); });
  return ended.exited && ended.code == 0 ? Escaped("seized a sibling") : Blocked(ended.code);
}

Observation SuspendSeccomp() {
  const Victim child;
  return FromCall(Call(SYS_ptrace, PTRACE_SEIZE, child.pid(), 0, kSuspendSeccomp), "suspended the filter of a child");
}

// Of a process it does not trace; outside, the kernel answers "no such process".
Observation PeekInit() {
  return FromHarmlessCall(Call(SYS_ptrace, PTRACE_PEEKDATA, 1, 0, 0), {ESRCH}, "PTRACE_PEEKDATA of PID 1");
}

const ParkedSetup kDenied = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.ptrace", "ptrace"}}};

const Registration kRow(Row{
    .id = "A08",
    .title = "ptrace of a child, a sibling, PID 1; PTRACE_O_SUSPEND_SECCOMP",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    .attempts = {{.name = "traceme", .probe = TraceMe, .expect = kDenied},
                 {.name = "attach", .probe = Attach, .expect = kDenied},
                 {.name = "sibling", .probe = SeizeSibling, .expect = kDenied},
                 {.name = "suspend_seccomp", .probe = SuspendSeccomp, .expect = kDenied},
                 {.name = "init", .probe = PeekInit, .control = {.reaches_kernel = true}, .expect = kDenied}},
});

}  // namespace

}  // namespace caisson::escape
