// Large outputs, artifacts and archives: files named by their SHA-256 in one directory, two levels deep
// ("ab/abcdef…"). A file appears whole or not at all, is never changed, and is removed when no job refers to it.
//
// They are kept beside the database and not in it, because a database copies every byte through its log, and because an
// artifact can then be sent to a client with the kernel doing the copying. Several services may share the directory.
//
// Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::service {

class Blobs {
 public:
  // Makes the directory (0700) when it is missing. `quota_bytes` 0: no bound.
  static Result<std::unique_ptr<Blobs>> Open(const std::string& directory, int64_t quota_bytes);

  // Gives the SHA-256. On the disk when it returns. kExhausted when the quota or the disk is full.
  Result<std::string> Put(std::string_view bytes);

  // A body that comes in pieces. What was not finished vanishes.
  class Upload;
  Result<std::unique_ptr<Upload>> Begin(int64_t max_bytes);

  // kNotFound; kInvalid for what is no SHA-256.
  Result<UniqueFd> Get(const std::string& sha256, int64_t* bytes = nullptr) const;

  // Removes files that are older than `grace_ms` and of which `in_use` does not give the name back; gives how many.
  // The grace covers what was put for a result that is not in the database yet.
  Result<int64_t> Collect(
      int64_t grace_ms, const std::function<Result<std::vector<std::string>>(const std::vector<std::string>&)>& in_use);
  int64_t bytes() const;
};

}  // namespace caisson::service
