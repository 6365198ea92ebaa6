// Entering a namespace that somebody else made: by a file of /proc, by a process, by a descriptor that was sent.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

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
  const int sent = OpenUts();
  char byte = 0;
  struct iovec data {
    &byte, 1
  };
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int))] = {};
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = rights;
  message.msg_controllen = sizeof(rights);
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  ::memcpy(CMSG_DATA(header), &sent, sizeof(sent));
  if (::sendmsg(ends[0], &message, 0) != 1 || ::recvmsg(ends[1], &message, 0) != 1)
    return NotApplicable("no descriptor was sent");
  int received = -1;
  ::memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(received));
  return FromCall(Call(SYS_setns, received, CLONE_NEWUTS), "entered by a descriptor that was sent");
}

const Expectation kKilled = {.death = Death::kRequired, .reports = {{"SyscallViolation", "syscall.ns", "setns"}}};

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
