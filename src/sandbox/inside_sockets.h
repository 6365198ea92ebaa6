// Sockets of a sandbox's network namespace, made from outside: a socket belongs to the namespace of the process that
// made it, whichever process holds it later. A short-lived process enters the namespace, makes the sockets and passes
// them out, so PID 1 and the workload are not involved.
//
// Runs: supervisor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

class InsideSockets {
 public:
  InsideSockets() = default;
  // Opens the namespaces of `pid`, which must still be inspectable (dumpable).
  static Result<InsideSockets> Of(pid_t pid);

  // Adds the pool and the addresses that rules name to the loopback interface.
  Status AddAddresses(const Network& network);

  // Returns an unbound TCP socket from a stock, which is refilled when it is empty.
  Result<UniqueFd> Take();
  // Returns an unbound TCP socket for IPv6, made now.
  Result<UniqueFd> MakeIpv6() const;

 private:
  Result<std::vector<UniqueFd>> MakeInside(const Network* addresses, int family, size_t count) const;

  UniqueFd user_;  // only where entering the network namespace takes more rights than we have outside
  UniqueFd network_;
  std::vector<UniqueFd> stock_;
};

}  // namespace caisson::sandbox
