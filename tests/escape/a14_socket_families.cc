// Each address family is a part of the kernel that a program can reach by one call, and the odd ones are where its
// holes are (AF_ALG: CVE-2026-31431, AF_PACKET: CVE-2020-14386, AF_RXRPC, AF_TIPC, ...).
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

long Open(int family, int type, int protocol) {
  const long fd = Call(SYS_socket, family, type, protocol);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return fd;
}

bool IsOrdinary(int family, int type, int protocol) {
  if (family == AF_UNIX) return true;
  if (family == AF_NETLINK) return protocol == NETLINK_ROUTE;
  if (family != AF_INET && family != AF_INET6) return false;
  return (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
         (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP));
}

Observation Sweep() {
  Tally tally;
  for (int family = 0; family <= 50; ++family) {
    // On the host, asking for a family loads its module, which would stay: there only the families of every kernel are
    // tried.
    if (IsControl() && family != AF_NETLINK) continue;
    for (const int type : {1, 2, 3, 4, 5, 6, 10}) {
      for (int protocol = 0; protocol <= 32; ++protocol) {
        if (IsOrdinary(family, type, protocol)) continue;
        const std::string name = std::to_string(family) + "/" + std::to_string(type) + "/" + std::to_string(protocol);
        tally.Add(name, Open(family, type, protocol));
      }
    }
  }
  return tally.SumAny();
}

// The permitted families must work, or the sweep above would prove nothing by refusing everything.
Observation Ordinary() {
  for (const int family : {AF_UNIX, AF_INET, AF_INET6}) {
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
      if (Open(family, type, 0) < 0) return Partial("ordinary sockets do not work any more");
    }
  }
  return Blocked(0, "ordinary sockets work");
}

Observation Known(int family, int type, int protocol) {
  const Observation ordinary = Ordinary();
  if (ordinary.seen == Seen::kPartial && !IsControl()) return ordinary;
  return FromCall(Open(family, type, protocol), "a socket");
}

// Only where it is there already: the control must not load it.
Observation IfPresent(int family, int type, const char* protocol_name) {
  if (IsControl() && ReadText("/proc/net/protocols").find(protocol_name) == std::string::npos)
    return NotApplicable(std::string("this kernel has no ") + protocol_name + " loaded");
  return FromCall(Open(family, type, 0), "a socket");
}

Attempt Watched(const char* name, std::function<Observation()> probe, int error, const char* reason) {
  return {.name = name,
          .probe = std::move(probe),
          .control = {.place = Place::kOwnNamespaces},
          .expect = {.errnos = {error}, .reports = {{"NetworkAccessViolation", reason, "socket"}}}};
}

const Registration kRow(Row{
    .id = "A14",
    .title = "sockets of every family, type and protocol",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    .attempts = {{.name = "sweep",
                  .probe = Sweep,
                  .expect = {.reports = {{"NetworkAccessViolation", "net.raw"},
                                         {"NetworkAccessViolation", "net.family", "", true}}}},
                 {.name = "netlink",
                  .probe = [] { return Known(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC); },
                  .expect = {.errnos = {EAFNOSUPPORT}}},
                 Watched(
                     "packet", [] { return Known(AF_PACKET, SOCK_RAW, 0); }, EAFNOSUPPORT, "net.family"),
                 Watched(
                     "raw", [] { return Known(AF_INET, SOCK_RAW, IPPROTO_TCP); }, EPERM, "net.raw"),
                 Watched(
                     "raw6", [] { return Known(AF_INET6, SOCK_RAW, IPPROTO_TCP); }, EPERM, "net.raw"),
                 Watched(
                     "alg", [] { return IfPresent(38, SOCK_SEQPACKET, "ALG"); }, EAFNOSUPPORT, "net.family"),
                 Watched(
                     "vsock", [] { return IfPresent(40, SOCK_STREAM, "AF_VSOCK"); }, EAFNOSUPPORT, "net.family"),
                 Watched(
                     "xdp", [] { return IfPresent(44, SOCK_RAW, "XDP"); }, EAFNOSUPPORT, "net.family"),
                 {.name = "mptcp",
                  .probe = [] { return FromCall(Open(AF_INET, SOCK_STREAM, 262), "a socket"); },
                  .expect = {.errnos = {EPROTONOSUPPORT}}}},
});

}  // namespace

}  // namespace caisson::escape
