// Large outputs, artifacts and archives: files named by their SHA-256 in one directory, two levels deep
// ("ab/abcdef…"). A file appears whole or not at all, is never changed, and is removed when no job refers to it.
//
// They are kept beside the database and not in it, because a database copies every byte through its log, and because an
// artifact can then be sent to a client with the kernel doing the copying. Several services may share the directory.
//
//   DIRECTORY/ab/abcdef…   a blob
//   DIRECTORY/incoming/…   files being written; after a crash they stay until Collect
//   DIRECTORY/lock         held shared while a blob appears, exclusively while blobs are removed
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "verify/digest.h"

namespace caisson::service {

class Blobs {
 public:
  // Makes the directory (0700) when it is missing. `quota_bytes` 0: no bound; `quota` is its name in messages. If
  // `total` is given, stored bytes are added to it too; it must outlive this object.
  static Result<std::unique_ptr<Blobs>> Open(const std::string& directory, int64_t quota_bytes,
                                             std::string quota = "the blobs' quota",
                                             std::atomic<int64_t>* total = nullptr);

  // Gives the SHA-256. On the disk when it returns. kExhausted when the quota is full; a full disk is kSystem with
  // ENOSPC or EDQUOT.
  Result<std::string> Put(std::string_view bytes);

  // A blob that is written in pieces. An unfinished upload is removed.
  class Upload;
  // `max_bytes` 0: no bound but the quota. Blobs must outlive its uploads.
  Result<std::unique_ptr<Upload>> Begin(int64_t max_bytes);

  // kNotFound; kInvalid if the name is not a SHA-256.
  Result<UniqueFd> Get(const std::string& sha256, int64_t* bytes = nullptr) const;
  // Renews a blob's time stamp as if it were put now. A caller calls this before it refers to a blob that another
  // caller put: the blob then stays for at least the grace time of Collect. kNotFound, kInvalid.
  Status Keep(const std::string& sha256) const;

  // Removes files that are older than `grace_ms` and whose names `in_use` does not return; returns their number. The
  // grace time protects blobs of results that are not in the database yet.
  Result<int64_t> Collect(
      int64_t grace_ms, const std::function<Result<std::vector<std::string>>(const std::vector<std::string>&)>& in_use);
  int64_t quota() const { return quota_; }
  // Includes files being written. Changes made by other services are included as of the last Collect.
  int64_t bytes() const;

 private:
  Blobs(std::string directory, UniqueFd root, int64_t quota_bytes, std::string quota_name, std::atomic<int64_t>* total)
      : directory_(std::move(directory)),
        root_(std::move(root)),
        quota_(quota_bytes),
        quota_name_(std::move(quota_name)),
        total_(total) {}

  // With the lock held.
  void Count(int64_t& what, int64_t change) {
    what += change;
    if (total_ != nullptr) *total_ += change;
  }

  Status Reserve(int64_t bytes);
  Result<UniqueFd> Lock(int how) const;
  // Gives a finished file its name; false when there is a blob of this name already. On the disk when it returns.
  Result<bool> Publish(const std::string& incoming, const std::string& sha256) const;
  Status SyncFolderOf(const std::string& sha256) const;
  Status RemoveOldIncoming(int64_t before_ms) const;
  Error Failed(const std::string& what) const;

  const std::string directory_;
  const UniqueFd root_;
  const int64_t quota_;
  const std::string quota_name_;
  std::atomic<int64_t>* const total_;
  mutable std::mutex mutex_;  // of all below, in bytes
  int64_t stored_ = 0;
  int64_t uploading_ = 0;
  int64_t published_ = 0;  // bytes added since Open; tells Collect how much arrived while it counted
};

class Blobs::Upload {
 public:
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;
  ~Upload();

  // kInvalid if the sum exceeds `max_bytes`, otherwise as Put. After an error the upload can only be dropped.
  Status Add(std::string_view bytes);
  // Gives the SHA-256. On the disk when it returns. Called once.
  Result<std::string> Finish();

 private:
  friend class Blobs;
  Upload(Blobs& blobs, UniqueFd file, std::string name, int64_t max_bytes)
      : blobs_(blobs), file_(std::move(file)), name_(std::move(name)), max_(max_bytes) {}

  Blobs& blobs_;
  UniqueFd file_;
  std::string name_;  // below the directory
  const int64_t max_;
  int64_t reserved_ = 0;
  verify::Sha256Stream digest_;
};

}  // namespace caisson::service
