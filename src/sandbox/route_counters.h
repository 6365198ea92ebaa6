// The kernel's own count of a sandbox's attempts to reach addresses without a route.
//
// A sandbox's network namespace has only loopback, so every attempt to reach another peer fails because there is no
// route. The namespace counts each attempt (OutNoRoutes) regardless of the arguments of the call: an address that
// another thread changed meanwhile, a source route in a socket option, a form that the observer does not know.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/unique_fd.h"

namespace caisson::sandbox {

class RouteCounters {
 public:
  // Opens the counters of the network namespace of process `pid`. Returns false when they cannot be opened.
  bool Open(pid_t pid);
  bool is_open() const { return ipv4_.valid(); }
  // Attempts since the namespace was made; nothing when the counters cannot be read.
  std::optional<int64_t> Read() const;

 private:
  UniqueFd ipv4_, ipv6_;  // invalid: the kernel has no IPv6
};

}  // namespace caisson::sandbox
