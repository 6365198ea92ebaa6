// Peers in forms that the kernel understands: AF_UNSPEC, which a datagram's destination may have for AF_INET, an IPv4
// address on an IPv6 socket, IPv4 inside IPv6, the second of two messages, a longer structure than there is.
#include <fcntl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

#include "escape/outside_peer.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

long Send(int fd, const void* address, size_t size) { return Call(SYS_sendto, fd, "x", 1, 0, address, size); }

struct msghdr MessageTo(void* address, socklen_t size) {
  static char byte = 'x';
  static struct iovec data { &byte, 1 };
  struct msghdr message {};
  message.msg_name = address;
  message.msg_namelen = size;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  return message;
}

struct sockaddr_in Unspecified() {
  struct sockaddr_in peer = OutsidePeer();
  peer.sin_family = AF_UNSPEC;
  return peer;
}

struct sockaddr_in6 Mapped() {
  const struct sockaddr_in peer = OutsidePeer();
  struct sockaddr_in6 mapped {};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = peer.sin_port;
  mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&mapped.sin6_addr.s6_addr[12], &peer.sin_addr, 4);
  return mapped;
}

int Datagram6() { return ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

Observation Try(long (*call)()) {
  if (!MakeOutsidePeerReachable()) return NotApplicable("no address can be added");
  return FromCall(call(), "reached a peer");
}

Attempt Form(const char* name, const char* reason, const char* syscall, long (*call)()) {
  return {.name = name,
          .probe = [call] { return Try(call); },
          .control = {.place = Place::kOwnNamespaces},
          .expect = {.errnos = {ENETUNREACH}, .reports = {{"NetworkAccessViolation", reason, syscall}}}};
}

const Registration kRow(Row{
    .id = "A22",
    .title = "peers in forms that only the kernel understands",
    .severity = Severity::kIntegrity,
    .walls = {"observer", "network namespace"},
    .attempts = {Form("unspecified-sendto", "net.send", "sendto",
                      [] {
                        const struct sockaddr_in peer = Unspecified();
                        return Send(Datagram(), &peer, sizeof(peer));
                      }),
                 Form("unspecified-sendmsg", "net.send", "sendmsg",
                      [] {
                        struct sockaddr_in peer = Unspecified();
                        const struct msghdr message = MessageTo(&peer, sizeof(peer));
                        return Call(SYS_sendmsg, Datagram(), &message, 0);
                      }),
                 Form("unspecified-sendmmsg", "net.send", "sendmmsg",
                      [] {
                        struct sockaddr_in peer = Unspecified();
                        struct mmsghdr messages[1] = {};
                        messages[0].msg_hdr = MessageTo(&peer, sizeof(peer));
                        return Call(SYS_sendmmsg, Datagram(), messages, 1, 0);
                      }),
                 Form("longer", "net.send", "sendmsg",
                      [] {
                        sockaddr_storage longer[2] = {};
                        const struct sockaddr_in peer = OutsidePeer();
                        std::memcpy(&longer[0], &peer, sizeof(peer));
                        const struct msghdr message = MessageTo(&longer[0], sizeof(longer));
                        return Call(SYS_sendmsg, Datagram(), &message, 0);
                      }),
                 Form("ipv4-on-ipv6", "net.send", "sendto",
                      [] {
                        const struct sockaddr_in peer = OutsidePeer();
                        return Send(Datagram6(), &peer, sizeof(peer));
                      }),
                 Form("ipv4-in-ipv6", "net.connect", "connect",
                      [] {
                        const struct sockaddr_in6 peer = Mapped();
                        return Call(SYS_connect, Datagram6(), &peer, sizeof(peer));
                      }),
                 Form("second-message", "net.send", "sendmmsg",
                      [] {
                        struct sockaddr_in here {};
                        here.sin_family = AF_INET;
                        here.sin_port = htons(9);
                        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                        struct sockaddr_in peer = OutsidePeer();
                        struct mmsghdr messages[2] = {};
                        messages[0].msg_hdr = MessageTo(&here, sizeof(here));
                        messages[1].msg_hdr = MessageTo(&peer, sizeof(peer));
                        const long sent = Call(SYS_sendmmsg, Datagram(), messages, 2, 0);
                        // The kernel reports how much it sent, not why it stopped.
                        return sent == 2 ? sent : long{-ENETUNREACH};
                      })},
});

}  // namespace

}  // namespace caisson::escape
