#include "session/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "linux/syscalls.h"
#include "verify/digest.h"

namespace caisson::session {

namespace {

constexpr size_t kMaxAttributeBytes = 65536;  // the kernel's own bound on a list and on a value

int64_t Nanoseconds(const struct statx_timestamp& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

EntryType TypeOf(mode_t mode) {
  if (S_ISREG(mode)) return EntryType::kFile;
  if (S_ISDIR(mode)) return EntryType::kDirectory;
  if (S_ISLNK(mode)) return EntryType::kLink;
  if (S_ISFIFO(mode)) return EntryType::kFifo;
  if (S_ISSOCK(mode)) return EntryType::kSocket;
  return EntryType::kDevice;
}

}  // namespace

Result<std::optional<EntryStat>> StatAt(int directory_fd, const std::string& name) {
  struct statx info {};
  const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (name.empty() ? AT_EMPTY_PATH : 0);
  if (::statx(directory_fd, name.c_str(), flags, STATX_BASIC_STATS | STATX_BTIME, &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<EntryStat>();
    return Error::System(errno, "look at " + QuotedPath(name));
  }
  EntryStat stat;
  stat.type = TypeOf(info.stx_mode);
  stat.mode = info.stx_mode & 07777;
  stat.size = static_cast<int64_t>(info.stx_size);
  stat.device = static_cast<uint64_t>(info.stx_dev_major) << 32 | info.stx_dev_minor;
  stat.inode = info.stx_ino;
  stat.ctime_ns = Nanoseconds(info.stx_ctime);
  stat.mtime_ns = Nanoseconds(info.stx_mtime);
  if ((info.stx_mask & STATX_BTIME) != 0) stat.birth_ns = Nanoseconds(info.stx_btime);
  stat.links = info.stx_nlink;
  stat.uid = info.stx_uid;
  stat.gid = info.stx_gid;
  stat.whiteout_device = S_ISCHR(info.stx_mode) && info.stx_rdev_major == 0 && info.stx_rdev_minor == 0;
  stat.mount_root = (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  stat.immutable = (info.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0;
  return std::optional<EntryStat>(stat);
}

Result<UniqueFd> OpenBelow(int directory_fd, const std::string& path, int flags) {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC | O_NOFOLLOW;
  if ((flags & O_PATH) == 0) how.flags |= O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  // The kernel answers EAGAIN when a rename elsewhere disturbed the walk.
  for (int tries = 0; tries < 100; ++tries) {
    UniqueFd fd(linux_sys::OpenAt2(directory_fd, path.empty() ? "." : path.c_str(), how));
    if (fd) return fd;
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return Error::System(errno, "open " + QuotedPath(path));
}

Result<UniqueFd> OpenParent(int root_fd, std::string_view path) {
  return OpenBelow(root_fd, std::string(ParentOf(path)), O_RDONLY | O_DIRECTORY);
}

std::string_view ParentOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view NameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string Joined(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

Status Budget::Entry(std::string_view path) {
  if (path.size() > limits_.path_bytes) {
    return Error::Exhausted("a path of the session's tree is longer than " + std::to_string(limits_.path_bytes) +
                            " bytes; remove it in the session: " + QuotedPath(path.substr(0, 100)) + "…");
  }
  if (++entries_ > limits_.entries) {
    return Error::Exhausted("the trees have more than " + std::to_string(limits_.entries) +
                            " entries to compare; remove what is not needed in the session");
  }
  return {};
}

Status Budget::Depth(int depth, std::string_view path) const {
  if (depth <= limits_.depth) return {};
  return Error::Exhausted("directories are nested deeper than " + std::to_string(limits_.depth) +
                          " levels; remove them in the session: " + QuotedPath(path.substr(0, 100)) + "…");
}

Status Budget::Read(int64_t bytes) {
  read_ += bytes;
  if (read_ <= limits_.read_bytes) return {};
  return Error::Exhausted("more than " + std::to_string(limits_.read_bytes) +
                          " bytes would have to be compared; remove large files in the session");
}

Result<std::vector<std::string>> ReadNames(int directory_fd, std::string_view path, Budget& budget) {
  CAISSON_TRY(UniqueFd copy, OpenBelow(directory_fd, "", O_RDONLY | O_DIRECTORY));
  std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(copy.get()), ::closedir);
  if (!directory) return Error::System(errno, "read the directory " + QuotedPath(path));
  copy.Release();
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const struct dirent* entry = ::readdir(directory.get());
    if (entry == nullptr && errno != 0) return Error::System(errno, "read the directory " + QuotedPath(path));
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    CAISSON_TRY_VOID(budget.Entry(Joined(path, name)));
    names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::optional<FileDigest>> HashFile(int file_fd, Budget& budget) {
  constexpr size_t kChunk = 1 << 18;
  const auto chunk = std::make_unique<char[]>(kChunk);
  verify::Sha256Stream hash;
  FileDigest digest;
  for (;;) {
    const ssize_t count = ::pread(file_fd, chunk.get(), kChunk, digest.bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::System(errno, "read a file");
    if (count == 0) break;
    digest.bytes += count;
    if (digest.bytes > budget.limits().file_bytes) return std::optional<FileDigest>();
    CAISSON_TRY_VOID(budget.Read(count));
    hash.Add({chunk.get(), static_cast<size_t>(count)});
  }
  digest.sha256 = hash.FinishHex();
  return std::optional<FileDigest>(std::move(digest));
}

Result<std::string> ReadLink(int directory_fd, const std::string& name) {
  char target[PATH_MAX + 1];
  const ssize_t length = ::readlinkat(directory_fd, name.c_str(), target, sizeof(target));
  if (length < 0) return Error::System(errno, "read the link " + QuotedPath(name));
  if (length > PATH_MAX) return Error::Exhausted("the target of a link is longer than PATH_MAX: " + QuotedPath(name));
  return std::string(target, static_cast<size_t>(length));
}

Result<Attributes> ReadAttributes(int fd) {
  std::string list(kMaxAttributeBytes, '\0');
  const ssize_t size = ::flistxattr(fd, list.data(), list.size());
  if (size < 0 && errno == ENOTSUP) return Attributes();
  if (size < 0) return Error::System(errno, "list extended attributes");
  Attributes attributes;
  for (const char* name = list.data(); name < list.data() + size; name += std::strlen(name) + 1) {
    const std::string_view text = name;
    // overlayfs keeps its own here, and escapes those that a program sets. The labels of security modules and of
    // integrity measurement differ between directories without any program's doing.
    if (text.substr(0, 13) == "user.overlay." || text == "security.selinux" || text == "security.SMACK64" ||
        text == "security.ima" || text == "security.evm") {
      continue;
    }
    std::string value(kMaxAttributeBytes, '\0');
    const ssize_t length = ::fgetxattr(fd, name, value.data(), value.size());
    if (length < 0) return Error::System(errno, "read the extended attribute " + QuotedPath(text));
    value.resize(static_cast<size_t>(length));
    attributes.emplace_back(text, std::move(value));
  }
  std::sort(attributes.begin(), attributes.end());
  return attributes;
}

Result<std::optional<std::string>> OverlayAttribute(int fd, const char* name) {
  char value[256];
  const ssize_t length = ::fgetxattr(fd, (std::string("user.overlay.") + name).c_str(), value, sizeof(value));
  if (length >= 0) return std::optional<std::string>(std::string(value, static_cast<size_t>(length)));
  if (errno == ENODATA || errno == ENOTSUP) return std::optional<std::string>();
  if (errno == ERANGE) return std::optional<std::string>(std::string());
  return Error::System(errno, std::string("read the overlay attribute ") + name);
}

}  // namespace caisson::session
