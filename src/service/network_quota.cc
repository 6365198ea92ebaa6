#include "service/network_quota.h"

#include <algorithm>
#include <cerrno>

namespace caisson::service {

NetworkQuota::Use& NetworkQuota::Find(const std::string& tenant, int64_t now_ms) {
  constexpr int64_t kDayMs = int64_t{24} * 3'600'000;
  Use& use = uses_[tenant];
  if (use.day != now_ms / kDayMs) {
    use.day = now_ms / kDayMs;
    use.bytes = 0;
  }
  return use;
}

Result<NetworkQuota::Share> NetworkQuota::Take(const std::string& tenant, int64_t now_ms,
                                               policy::NetworkLimits& limits) {
  if (connections_ == 0 && bytes_ == 0) return Share();
  const std::lock_guard lock(mutex_);
  Use& use = Find(tenant, now_ms);
  if (bytes_ != 0) {
    const int64_t left = bytes_ - use.bytes;
    if (left <= 0) {
      return Error::Denied(
          "network: the tenant has used up its bytes of today (network_bytes_per_tenant); they begin anew at 00:00 "
          "UTC");
    }
    limits.bytes = limits.bytes == 0 ? left : std::min(limits.bytes, left);
  }
  if (connections_ != 0) {
    const int64_t left = connections_ - use.connections;
    if (left <= 0) {
      return Error::System(EAGAIN,
                           "network: other jobs of the tenant have its connections (network_connections_per_tenant)");
    }
    limits.connections = std::min(limits.connections, left);
    use.connections += limits.connections;
    return Share(*this, tenant, limits.connections);
  }
  return Share();
}

void NetworkQuota::Charge(const std::string& tenant, int64_t now_ms, int64_t bytes) {
  if (bytes_ == 0) return;
  const std::lock_guard lock(mutex_);
  Find(tenant, now_ms).bytes += bytes;
}

void NetworkQuota::Return(const std::string& tenant, int64_t connections) {
  const std::lock_guard lock(mutex_);
  uses_[tenant].connections -= connections;
}

}  // namespace caisson::service
