// Resolves a host name without the C library's name service, which in a static program would load shared objects of an
// arbitrary version. Numbers, localhost, /etc/hosts, then DNS.
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
