// The walls around the two egress processes. Both read hostile bytes, so they have no files, no programs, no capability
// and no user that owns anything, and of the network only the sockets that their work needs.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace caisson::egress {

enum class Role : uint8_t {
  kRelay,     // accepts and dials TCP connections
  kResolver,  // asks DNS servers over UDP
};

struct Confinement {
  Role role = Role::kRelay;
  uint32_t uid = 65534;  // root becomes this user; other users get a user namespace that maps no user
  uint32_t gid = 65534;
  bool terminates_tls = false;  // OpenSSL asks for its process number before it draws random numbers
  uint64_t descriptors = 0;
  uint64_t memory_bytes = 0;
};

// Confinement cannot be undone. Returns the version of Landlock in force, or 0 when the kernel has none; then only the
// filter keeps files away. After an error only some of the walls are in place, and the process must not read any
// hostile byte.
Result<int> Confine(const Confinement& confinement);

}  // namespace caisson::egress
