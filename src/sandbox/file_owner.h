// Lends this thread the file-system rights of the sandbox's user.
#pragma once

#include <sys/fsuid.h>
#include <sys/types.h>

#include <optional>

namespace caisson::sandbox {

// During its lifetime this thread has the file-system rights of `owner`, and new files belong to `owner`.
class FileOwner {
 public:
  explicit FileOwner(std::optional<uid_t> owner) : owner_(owner) {
    if (!owner_) return;
    gid_ = ::setfsgid(static_cast<gid_t>(*owner_));
    uid_ = ::setfsuid(*owner_);
  }
  ~FileOwner() {
    if (!owner_) return;
    ::setfsuid(static_cast<uid_t>(uid_));
    ::setfsgid(static_cast<gid_t>(gid_));
  }
  FileOwner(const FileOwner&) = delete;
  FileOwner& operator=(const FileOwner&) = delete;

  // The calls that change the user do not report whether they succeeded.
  bool holds() const { return !owner_ || ::setfsuid(static_cast<uid_t>(-1)) == static_cast<int>(*owner_); }

 private:
  const std::optional<uid_t> owner_;
  int uid_ = 0, gid_ = 0;
};

}  // namespace caisson::sandbox
