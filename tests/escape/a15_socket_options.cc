// Ordinary sockets turned into something else by an option: kernel TLS, IPsec in UDP, programs in the kernel, pages of
// files sent without a copy.
#include <linux/filter.h>
#include <linux/udp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kUdpEncapEspInUdp = 2, kSoZerocopy = 60;

int Tcp() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }
int Udp() { return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

Observation Set(int fd, int level, int option, int value, std::string what) {
  return FromCall(Call(SYS_setsockopt, fd, level, option, &value, sizeof(value)), std::move(what));
}

// Without the name of a protocol, so that none is loaded.
Observation Tls() {
  return FromHarmlessCall(Call(SYS_setsockopt, Tcp(), SOL_TCP, TCP_ULP, "", 0), {EINVAL}, "TCP_ULP");
}

Observation EspInUdp() { return Set(Udp(), IPPROTO_UDP, UDP_ENCAP, kUdpEncapEspInUdp, "IPsec in UDP"); }

Observation Filter() {
  struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  struct sock_fprog program {
    1, &drop
  };
  return FromCall(Call(SYS_setsockopt, Udp(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
                  "a program in the kernel");
}

Observation ExtendedFilter() {
  int none = -1;
  return FromHarmlessCall(Call(SYS_setsockopt, Udp(), SOL_SOCKET, SO_ATTACH_BPF, &none, sizeof(none)), {EBADF, EINVAL},
                          "SO_ATTACH_BPF");
}

Observation Transparent() { return Set(Udp(), SOL_IP, IP_TRANSPARENT, 1, "speaks for other addresses"); }

// Pages given to the network this way are the file's own, and every fault in handling them writes to the page cache.
Observation ZeroCopy() { return Set(Tcp(), SOL_SOCKET, kSoZerocopy, 1, "sends pages without a copy"); }

// The control has a network namespace of its own, whose groups it lets ping.
Observation Ping() {
  if (IsControl()) WriteText("/proc/sys/net/ipv4/ping_group_range", "0 0");
  return FromCall(Call(SYS_socket, AF_INET, SOCK_DGRAM, IPPROTO_ICMP), "a ping socket");
}

// The first interface that is not the loopback; inside there is none.
Observation BindToDevice() {
  struct if_nameindex* interfaces = ::if_nameindex();
  std::string name = "eth0";
  for (struct if_nameindex* entry = interfaces; entry != nullptr && entry->if_index != 0; ++entry) {
    if (::strcmp(entry->if_name, "lo") != 0) name = entry->if_name;
  }
  if (interfaces != nullptr) ::if_freenameindex(interfaces);
  return FromCall(Call(SYS_setsockopt, Udp(), SOL_SOCKET, SO_BINDTODEVICE, name.c_str(), name.size()),
                  "bound to " + name);
}

const ParkedSetup kReported = {.errnos = {EPERM}, .reports = {{"NetworkAccessViolation", "net.option", "setsockopt"}}};

const Registration kRow(Row{
    .id = "A15",
    .title = "socket options: kernel TLS, ESP in UDP, BPF, zero copy, devices",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "network namespace", "capabilities"},
    .attempts = {{.name = "tls", .probe = Tls, .control = {.reaches_kernel = true}, .expect = kReported},
                 {.name = "esp_in_udp", .probe = EspInUdp, .expect = kReported},
                 {.name = "bpf", .probe = ExtendedFilter, .control = {.reaches_kernel = true}, .expect = kReported},
                 {.name = "filter", .probe = Filter, .expect = {.errnos = {EPERM}}},
                 {.name = "transparent",
                  .probe = Transparent,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {EPERM}}},
                 {.name = "zerocopy", .probe = ZeroCopy, .expect = {.errnos = {EPERM, ENOPROTOOPT}}},
                 {.name = "ping",
                  .probe = Ping,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {EPROTONOSUPPORT}}},
                 {.name = "device", .probe = BindToDevice, .expect = {.errnos = {ENODEV, EPERM}}}},
});

}  // namespace

}  // namespace caisson::escape
