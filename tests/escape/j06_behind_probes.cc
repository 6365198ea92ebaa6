// Refused probes of ordinary libraries are notices and not violations. So a thousand of them come first, and then one
// real attempt: it must fail the run as if it were alone.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kTimes = 1000;
constexpr int kPreferred = 1;  // MPOL_PREFERRED

// As OpenBLAS, a file watcher and fontconfig do. Not in the control, where the last one would leave something behind.
void Probe() {
  if (IsControl()) return;
  alignas(4096) static char page[4096];
  for (int i = 0; i < kTimes; ++i) {
    Call(SYS_mbind, page, sizeof(page), kPreferred, nullptr, 0, 0);
    Call(SYS_fanotify_init, 0xe03, O_CLOEXEC);
    ::mkdir(("/var/cache/fontconfig/" + std::to_string(i)).c_str(), 0755);
  }
}

Observation Write() {
  Probe();
  const std::string path = (IsControl() ? WritableDirectory() : "/usr/bin") + "/caisson-selftest-fresh";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Blocked(errno);
  ::close(fd);
  ::unlink(path.c_str());
  return Escaped("made a file");
}

// A datagram socket sends nothing when it is connected.
Observation Connect() {
  Probe();
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in peer {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(9);
  ::inet_pton(AF_INET, "192.0.2.1", &peer.sin_addr);
  const long result = Call(SYS_connect, fd, &peer, sizeof(peer));
  ::close(fd);
  return FromCall(result, "has a route out");
}

Observation Reach() {
  Probe();
  char from = 'x', to = 0;
  struct iovec local {
    &to, 1
  };
  struct iovec remote {
    &from, 1
  };
  return FromCall(Call(SYS_process_vm_readv, ::getpid(), &local, 1, &remote, 1, 0), "read memory through the kernel");
}

const Registration kRow(Row{
    .id = "J06",
    .title = "one real attempt behind thousands of harmless probes",
    .severity = Severity::kIntegrity,
    .walls = {"seccomp notifications", "probes by exact rule"},
    .attempts = {{.name = "write",
                  .probe = Write,
                  .expect = {.errnos = {EROFS, EACCES}, .reports = {{"FilesystemWriteViolation", "fs.write"}}}},
                 {.name = "connect",
                  .probe = Connect,
                  .expect = {.errnos = {ENETUNREACH}, .reports = {{"NetworkAccessViolation", "net.connect"}}}},
                 {.name = "call",
                  .probe = Reach,
                  .expect = {.errnos = {EPERM},
                             .reports = {{"SyscallViolation", "syscall.ptrace", "process_vm_readv"}}}}},
});

}  // namespace

}  // namespace caisson::escape
