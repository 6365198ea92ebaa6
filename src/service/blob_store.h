// The blobs of all tenants. Each tenant has a directory of its own: only its tenant can read a blob, two tenants with
// equal bytes have two files, and no tenant can find out what another has.
//
//   DIRECTORY/t-TENANT/…   blobs of a tenant (service/blobs.h)
//   DIRECTORY/ab/…         blobs from before tenants had their own; only jobs of that time refer to them
//
// There are two bounds. A tenant that exceeds its own quota gets kExhausted with the quota's name. The common quota and
// the disk are the operator's responsibility: kSystem with EDQUOT or ENOSPC, so that jobs wait instead of failing.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "service/blobs.h"

namespace caisson::service {

class BlobStore {
 public:
  // Quotas of 0: no bound.
  static Result<std::unique_ptr<BlobStore>> Open(const std::string& directory, int64_t quota_bytes,
                                                 int64_t tenant_quota_bytes);

  // The tenant's blobs. The reference is valid as long as this object. Errors as for HasRoom.
  Result<Blobs*> Of(const std::string& tenant);
  // For adding blobs; call HasRoom first.
  Result<std::string> Put(const std::string& tenant, std::string_view bytes);
  Result<std::unique_ptr<Blobs::Upload>> Begin(const std::string& tenant, int64_t max_bytes);
  // kNotFound when the tenant has no such blob. With `old_too`, also searches the place where blobs were kept before
  // tenants had directories.
  Result<UniqueFd> Get(const std::string& tenant, const std::string& sha256, int64_t* bytes, bool old_too);

  // Whether anything at all can be added: kSystem with EDQUOT or ENOSPC otherwise.
  Status HasRoom() const;
  // Whether the tenant has room for the result of another job: kExhausted, with the quota's name and numbers.
  Status HasRoom(const std::string& tenant);

  // Whether the tenant's quota has so many bytes left: kExhausted. Does not look at the disk.
  Status HasRoomFor(const std::string& tenant, int64_t bytes);

  // As Blobs::Collect, for all tenants. The tenant is empty for blobs from before tenants had directories.
  using InUse =
      std::function<Result<std::vector<std::string>>(const std::vector<std::string>& names, const std::string& tenant)>;
  Result<int64_t> Collect(int64_t grace_ms, const InUse& in_use);
  int64_t bytes() const { return total_; }
  const std::string& directory() const { return directory_; }

 private:
  BlobStore(std::string directory, int64_t quota, int64_t tenant_quota)
      : directory_(std::move(directory)), quota_(quota), tenant_quota_(tenant_quota) {}

  const std::string directory_;
  const int64_t quota_, tenant_quota_;
  std::atomic<int64_t> total_{0};
  std::unique_ptr<Blobs> old_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Blobs>> tenants_;
};

}  // namespace caisson::service
