// Entering a foreign namespace: by a file of /proc, by a process, by a descriptor that was sent.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape/message.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

int OpenUts() { return ::open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC); }

Observation ByFile() { return FromCall(Call(SYS_setns, OpenUts(), CLONE_NEWUTS), "entered by file"); }

Observation ByPidfd() {
  const long process = Call(SYS_pidfd_open, ::getpid(), 0);
  if (process < 0) return NotApplicable("no pidfd");
  return FromCall(Call(SYS_setns, process, CLONE_NEWUTS), "entered by process");
}

Observation ByMessage() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return NotApplicable("no socket pair");
  if (SendDescriptors(ends[0], {OpenUts()}) != 0) return NotApplicable("no descriptor was sent");
  const int received = ReceiveDescriptor(ends[1]);
  if (received < 0) return NotApplicable("no descriptor came");
  return FromCall(Call(SYS_setns, received, CLONE_NEWUTS), "entered by a descriptor that was sent");
}

const ParkedSetup kKilled = {.death = Death::kRequired, .reports = {{"SyscallViolation", "syscall.ns", "setns"}}};

Attempt Enter(const char* name, Observation (*probe)()) {
  return {.name = name, .probe = probe, .control = {.place = Place::kOwnNamespaces}, .expect = kKilled};
}

const Registration kRow(Row{
    .id = "A07",
    .title = "setns by a file of /proc, by a pidfd, by a sent descriptor",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    .attempts = {Enter("file", ByFile), Enter("pidfd", ByPidfd), Enter("message", ByMessage)},
});

}  // namespace

}  // namespace caisson::escape
