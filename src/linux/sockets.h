// Sockets of the caller's own network.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::linux_sys {

// A TCP socket that listens at 127.0.0.1 and `port`.
inline Result<UniqueFd> ListenAtLoopback(uint16_t port) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  struct sockaddr_in place {};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  if (!listener || ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(listener.get(), reinterpret_cast<const struct sockaddr*>(&place), sizeof(place)) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0)
    return Error::System(errno, "listen at 127.0.0.1:" + std::to_string(port));
  return listener;
}

}  // namespace caisson::linux_sys
