// What the jobs of each tenant may use of the network together: connections at a time and bytes in a day. A job begins
// with what its tenant has left, so no job needs to be stopped later. Counted by this service, since it started. Any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::service {

class NetworkQuota {
 public:
  // 0: no bound.
  NetworkQuota(int64_t connections, int64_t bytes) : connections_(connections), bytes_(bytes) {}

  // Returns the connections of one job in its destructor.
  class Share {
   public:
    Share() = default;
    Share(NetworkQuota& quota, std::string tenant, int64_t connections)
        : quota_(&quota), tenant_(std::move(tenant)), connections_(connections) {}
    Share(Share&& other) noexcept
        : quota_(std::exchange(other.quota_, nullptr)),
          tenant_(std::move(other.tenant_)),
          connections_(other.connections_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(quota_, other.quota_);
      std::swap(tenant_, other.tenant_);
      std::swap(connections_, other.connections_);
      return *this;
    }
    ~Share() {
      if (quota_ != nullptr) quota_->Return(tenant_, connections_);
    }

   private:
    NetworkQuota* quota_ = nullptr;
    std::string tenant_;
    int64_t connections_ = 0;
  };

  // Lowers a job's limits to what its tenant has left. Without a connection left the error is EAGAIN, and the job
  // waits; without a byte left it is kDenied.
  Result<Share> Take(const std::string& tenant, int64_t now_ms, policy::NetworkLimits& limits);
  // Adds what a job has used.
  void Charge(const std::string& tenant, int64_t now_ms, int64_t bytes);

 private:
  struct Use {
    int64_t connections = 0;
    int64_t day = 0;    // since 1970, UTC
    int64_t bytes = 0;  // on that day
  };

  void Return(const std::string& tenant, int64_t connections);
  // Needs the lock.
  Use& Find(const std::string& tenant, int64_t now_ms);

  const int64_t connections_, bytes_;
  std::mutex mutex_;
  std::map<std::string, Use> uses_;
};

}  // namespace caisson::service
