// Reading a tree that may be hostile: stat, list, open and hash entries by one name at a time, without following a link
// or opening anything but regular files and directories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "session/change.h"
#include "session/limits.h"

namespace caisson::session {

struct EntryStat {
  EntryType type = EntryType::kAbsent;
  mode_t mode = 0;  // 07777
  int64_t size = 0;
  uint64_t device = 0, inode = 0;
  int64_t ctime_ns = 0, mtime_ns = 0, birth_ns = 0;  // birth_ns is 0 where the file system has none
  uint32_t links = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  bool whiteout_device = false;  // character device 0:0
  bool mount_root = false;
  bool immutable = false;  // or append-only
};

// `name` may be a single name or a path whose directories the caller trusts; "" stats the descriptor itself. Nothing if
// the entry does not exist.
Result<std::optional<EntryStat>> StatAt(int directory_fd, const std::string& name);

// Opens below `directory_fd`: RESOLVE_BENEATH, no links, no other mounts, never blocking. The errno stays readable in
// the error: ELOOP for a link, EXDEV for a mount.
Result<UniqueFd> OpenBelow(int directory_fd, const std::string& path, int flags);
// The directory that holds `path`, opened for reading; "" is `root_fd` itself.
Result<UniqueFd> OpenParent(int root_fd, std::string_view path);

std::string_view ParentOf(std::string_view path);  // "" for a path of one name
std::string_view NameOf(std::string_view path);
std::string Joined(std::string_view directory, std::string_view name);

// Counts what is spent of the limits. One for each diff.
class Budget {
 public:
  explicit Budget(const DiffLimits& limits) : limits_(limits) {}
  const DiffLimits& limits() const { return limits_; }
  Status Entry(std::string_view path);  // one more entry, of that path
  Status Depth(int depth, std::string_view path) const;
  Status Read(int64_t bytes);

 private:
  DiffLimits limits_;
  int64_t entries_ = 0, read_ = 0;
};

// The names in a directory, sorted by bytes. Each counts as an entry.
Result<std::vector<std::string>> ReadNames(int directory_fd, std::string_view path, Budget& budget);

// SHA-256 of a regular file's bytes. Nothing if it has more than limits.file_bytes.
struct FileDigest {
  std::string sha256;
  int64_t bytes = 0;
};
Result<std::optional<FileDigest>> HashFile(int file_fd, Budget& budget);

Result<std::string> ReadLink(int directory_fd, const std::string& name);

// The names and values of extended attributes, without those that overlayfs and the security modules keep.
using Attributes = std::vector<std::pair<std::string, std::string>>;
Result<Attributes> ReadAttributes(int fd);
// The value of one attribute of overlayfs, such as "opaque"; nothing if there is none.
Result<std::optional<std::string>> OverlayAttribute(int fd, const char* name);

}  // namespace caisson::session
