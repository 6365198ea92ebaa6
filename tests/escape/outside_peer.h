// A peer that no sandbox can reach and a control can: an address of the documentation network (RFC 5737), which the
// control, in a network namespace of its own, puts on its loopback.
#pragma once

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "escape/probe.h"

namespace caisson::escape {

inline struct sockaddr_in OutsidePeer() {
  struct sockaddr_in peer {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(9);
  ::inet_pton(AF_INET, "192.0.2.1", &peer.sin_addr);
  return peer;
}

inline int Datagram() { return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

// Inside there is nothing to be done.
inline bool MakeOutsidePeerReachable() {
  if (!IsControl()) return true;
  const int fd = Datagram();
  struct ifreq request {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  bool made = ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  std::strcpy(request.ifr_name, "lo:1");
  const struct sockaddr_in peer = OutsidePeer();
  std::memcpy(&request.ifr_addr, &peer, sizeof(peer));
  made = made && ::ioctl(fd, SIOCSIFADDR, &request) == 0;
  ::close(fd);
  return made;
}

}  // namespace caisson::escape
