#include "service/blob_store.h"

#include <dirent.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "policy/syntax.h"

namespace caisson::service {
namespace {

constexpr char kPrefix[] = "t-";
// Disk space kept free for the database and the audit log, which share the disk and must stay writable.
constexpr uint64_t kKeptFreeBytes = uint64_t{32} << 20;

// The space that a job may need at its end: its output as JSON and as raw bytes.
constexpr int64_t kRoomForAResult = int64_t{32} << 20;

}  // namespace

Result<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& directory, int64_t quota_bytes,
                                                   int64_t tenant_quota_bytes) {
  std::unique_ptr<BlobStore> store(new BlobStore(directory, quota_bytes, tenant_quota_bytes));
  CAISSON_TRY(store->old_, Blobs::Open(directory, 0, "blob_quota", &store->total_));
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
  if (entries == nullptr) return Error::System(errno, "open " + directory);
  std::vector<std::string> tenants;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name.rfind(kPrefix, 0) == 0) tenants.push_back(name.substr(sizeof(kPrefix) - 1));
  }
  for (const std::string& tenant : tenants) CAISSON_TRY_VOID(store->Of(tenant));
  return store;
}

Result<Blobs*> BlobStore::Of(const std::string& tenant) {
  // SECURITY: the tenant's name becomes a directory name.
  if (!policy::IsWord(tenant, "._-", 64)) return Error::Invalid("is no tenant's name");
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Blobs>& blobs = tenants_[tenant];
  if (blobs == nullptr) {
    Result<std::unique_ptr<Blobs>> opened =
        Blobs::Open(directory_ + "/" + kPrefix + tenant, tenant_quota_, "blob_quota_per_tenant", &total_);
    if (!opened) {
      tenants_.erase(tenant);
      return std::move(opened).error();
    }
    blobs = *std::move(opened);
  }
  return blobs.get();
}

Status BlobStore::HasRoom() const {
  if (quota_ > 0 && total_ >= quota_) return Error::System(EDQUOT, "blob_quota is used up");
  struct statvfs disk {};
  if (::statvfs(directory_.c_str(), &disk) != 0) return Error::System(errno, "look at the disk of the blobs");
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free < kKeptFreeBytes || (disk.f_files > 0 && disk.f_favail == 0))
    return Error::System(ENOSPC, "the disk of the blobs is full");
  return {};
}

Status BlobStore::HasRoom(const std::string& tenant) {
  CAISSON_TRY(const Blobs* blobs, Of(tenant));
  const int64_t used = blobs->bytes();
  const int64_t needed = std::min(kRoomForAResult, tenant_quota_ / 4);
  if (tenant_quota_ <= 0 || used + needed <= tenant_quota_) return {};
  return Error::Exhausted("blob_quota_per_tenant: this tenant's results, artifacts and archives take " +
                          std::to_string(used) + " of " + std::to_string(tenant_quota_) + " bytes, and a job needs " +
                          std::to_string(needed) + "; there is room again when old jobs are removed");
}

Status BlobStore::HasRoomFor(const std::string& tenant, int64_t bytes) {
  CAISSON_TRY(const Blobs* blobs, Of(tenant));
  if (tenant_quota_ <= 0 || blobs->bytes() + bytes <= tenant_quota_) return {};
  return Error::Exhausted("blob_quota_per_tenant: this tenant has no room for " + std::to_string(bytes) +
                          " bytes; there is room again when old jobs are removed");
}

Result<std::unique_ptr<Blobs::Upload>> BlobStore::Begin(const std::string& tenant, int64_t max_bytes) {
  CAISSON_TRY_VOID(HasRoom());
  CAISSON_TRY(Blobs * blobs, Of(tenant));
  return blobs->Begin(max_bytes);
}

Result<std::string> BlobStore::Put(const std::string& tenant, std::string_view bytes) {
  CAISSON_TRY_VOID(HasRoom());
  CAISSON_TRY(Blobs * blobs, Of(tenant));
  return blobs->Put(bytes);
}

Result<UniqueFd> BlobStore::Get(const std::string& tenant, const std::string& sha256, int64_t* bytes, bool old_too) {
  CAISSON_TRY(const Blobs* blobs, Of(tenant));
  Result<UniqueFd> file = blobs->Get(sha256, bytes);
  if (file || !old_too || file.error().kind != ErrorKind::kNotFound) return file;
  return old_->Get(sha256, bytes);
}

Result<int64_t> BlobStore::Collect(int64_t grace_ms, const InUse& in_use) {
  std::vector<std::pair<std::string, Blobs*>> all = {{"", old_.get()}};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [tenant, blobs] : tenants_) all.emplace_back(tenant, blobs.get());
  }
  int64_t removed = 0;
  for (const auto& one : all) {
    CAISSON_TRY(const int64_t count, one.second->Collect(grace_ms, [&](const std::vector<std::string>& names) {
      return in_use(names, one.first);
    }));
    removed += count;
  }
  return removed;
}

}  // namespace caisson::service
