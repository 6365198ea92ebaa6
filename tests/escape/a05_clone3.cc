// clone3 keeps its flags in memory, where a filter cannot look, so it must not exist at all.
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation Clone3(uint64_t flags) {
  struct clone_args arguments {};
  arguments.flags = flags;
  arguments.exit_signal = SIGCHLD;
  const long child = Call(SYS_clone3, &arguments, sizeof(arguments));
  if (child == 0) ::_exit(0);
  if (child > 0) {
    ::waitpid(static_cast<pid_t>(child), nullptr, 0);
    return Escaped("a child");
  }
  // The C library falls back to clone on ENOSYS, and on no other error.
  pthread_t thread;
  const auto body = [](void*) -> void* { return nullptr; };
  if (::pthread_create(&thread, nullptr, body, nullptr) != 0) return Partial("threads do not work any more");
  ::pthread_join(thread, nullptr);
  return Blocked(static_cast<int>(-child));
}

const Registration kRow(Row{
    .id = "A05",
    .title = "clone3: flags behind a pointer, where no filter looks",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    .attempts = {{.name = "plain", .probe = [] { return Clone3(0); }, .expect = {.errnos = {ENOSYS}}},
                 {.name = "newuser", .probe = [] { return Clone3(CLONE_NEWUSER); }, .expect = {.errnos = {ENOSYS}}}},
});

}  // namespace

}  // namespace caisson::escape
