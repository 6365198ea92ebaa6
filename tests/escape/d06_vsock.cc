// Sockets to the hypervisor and to other programs on the same machine: no namespace isolates them, so there must be
// none.
//
// SAFETY: the control creates a socket and does not connect.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation Open(int type) {
  if (IsControl() && ReadText("/proc/net/protocols").find("AF_VSOCK") == std::string::npos)
    return NotApplicable("this kernel has no AF_VSOCK loaded");
  const long fd = Call(SYS_socket, AF_VSOCK, type, 0);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return FromCall(fd, "a socket");
}

const ParkedSetup kDenied = {.errnos = {EAFNOSUPPORT}, .reports = {{"NetworkAccessViolation", "net.family", "socket"}}};

const Registration kRow(Row{
    .id = "D06",
    .title = "AF_VSOCK: to the hypervisor, and from one sandbox to another",
    .severity = Severity::kLateral,
    .walls = {"seccomp"},
    .attempts = {{.name = "stream", .probe = [] { return Open(SOCK_STREAM); }, .expect = kDenied},
                 {.name = "seqpacket", .probe = [] { return Open(SOCK_SEQPACKET); }, .expect = kDenied}},
});

}  // namespace

}  // namespace caisson::escape
