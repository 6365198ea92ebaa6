// Addresses of a host, without the C library's name service: in a static program that would load shared objects of
// whatever version it finds. Numbers, localhost, /etc/hosts, then DNS.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace caisson::client {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// At least one, or kNotFound.
Result<std::vector<Address>> Resolve(const std::string& host, int port);

}  // namespace caisson::client
