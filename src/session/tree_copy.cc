#include "session/tree_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "base/units.h"
#include "base/utf8.h"
#include "linux/syscalls.h"

namespace caisson::session {

namespace {

constexpr int kDeepest = 256;

UniqueFd OpenIn(int directory, const char* name, int flags) {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(directory, name, how));
}

class Copier {
 public:
  explicit Copier(const CopyLimits& limits) : limits_(limits) {}

  Status Directory(int source, int target, int depth) {
    if (depth > kDeepest) return Error::Exhausted("more than " + std::to_string(kDeepest) + " directories deep");
    const int own = ::openat(source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(own < 0 ? nullptr : ::fdopendir(own), ::closedir);
    if (!entries) return Error::System(errno, "read a directory");
    while (true) {
      errno = 0;
      const struct dirent* entry = ::readdir(entries.get());
      if (entry == nullptr && errno != 0) return Error::System(errno, "read a directory");
      if (entry == nullptr) return {};
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (++entries_ > limits_.most_entries)
        return Error::Exhausted("more than " + std::to_string(limits_.most_entries) + " entries");
      Status copied = Entry(source, target, entry->d_name, depth);
      if (!copied) return std::move(copied).error().In(EscapeForTerminal(name));
    }
  }

 private:
  Status Entry(int source, int target, const char* name, int depth) {
    struct stat info {};
    if (::fstatat(source, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return Error::System(errno, "stat");
    switch (info.st_mode & S_IFMT) {
      case S_IFREG:
        return File(source, target, name, info);
      case S_IFDIR:
        return SubDirectory(source, target, name, info, depth);
      case S_IFLNK:
        return Link(source, target, name, info);
      case S_IFCHR:
        if (!limits_.overlay_layer || info.st_rdev != ::makedev(0, 0)) return {};
        if (::mknodat(target, name, S_IFCHR, ::makedev(0, 0)) != 0) return Error::System(errno, "make a whiteout");
        return {};
      default:
        return {};
    }
  }

  Status File(int source, int target, const char* name, const struct stat& info) {
    const UniqueFd from = OpenIn(source, name, O_RDONLY);
    struct stat opened {};
    if (!from || ::fstat(from.get(), &opened) != 0) return Error::System(errno, "open");
    if (!S_ISREG(opened.st_mode)) return Error::System(ESTALE, "changed while it was copied");
    bytes_ += int64_t{opened.st_blocks} * 512;
    if (bytes_ > limits_.most_bytes)
      return Error::Exhausted("larger than " + FormatSize(limits_.most_bytes) + "; allow more with --disk");
    const UniqueFd to(::openat(target, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!to) return Error::System(errno, "create");
    if (::ioctl(to.get(), FICLONE, from.get()) != 0) CAISSON_TRY_VOID(Bytes(from.get(), to.get(), opened.st_size));
    return Attributes(from.get(), to.get(), info);
  }

  // Holes stay holes.
  static Status Bytes(int from, int to, off_t size) {
    std::array<char, 65536> buffer;
    for (off_t offset = 0; offset < size;) {
      const off_t data = ::lseek(from, offset, SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;
      off_t begin = data < 0 ? offset : data;
      off_t end = data < 0 ? size : ::lseek(from, begin, SEEK_HOLE);
      if (end < 0 || end > size) end = size;
      while (begin < end) {
        const ssize_t count =
            ::pread(from, buffer.data(), std::min<size_t>(buffer.size(), static_cast<size_t>(end - begin)), begin);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return Error::System(errno, "read");
        if (count == 0) break;  // it shrank
        for (ssize_t done = 0; done < count;) {
          const ssize_t written = ::pwrite(to, buffer.data() + done, static_cast<size_t>(count - done), begin + done);
          if (written < 0 && errno == EINTR) continue;
          if (written < 0) return Error::System(errno, "write");
          done += written;
        }
        begin += count;
      }
      if (begin < end) break;
      offset = end;
    }
    if (::ftruncate(to, size) != 0) return Error::System(errno, "truncate");
    return {};
  }

  Status SubDirectory(int source, int target, const char* name, const struct stat& info, int depth) {
    const UniqueFd from = OpenIn(source, name, O_RDONLY | O_DIRECTORY);
    if (!from) return Error::System(errno, "open");
    if (::mkdirat(target, name, 0700) != 0) return Error::System(errno, "make a directory");
    const UniqueFd to = OpenIn(target, name, O_RDONLY | O_DIRECTORY);
    if (!to) return Error::System(errno, "open");
    CAISSON_TRY_VOID(Directory(from.get(), to.get(), depth + 1));
    return Attributes(from.get(), to.get(), info);
  }

  Status Link(int source, int target, const char* name, const struct stat& info) {
    std::array<char, 4097> text;
    const ssize_t size = ::readlinkat(source, name, text.data(), text.size() - 1);
    if (size < 0) return Error::System(errno, "read a link");
    text[static_cast<size_t>(size)] = '\0';
    if (::symlinkat(text.data(), target, name) != 0) return Error::System(errno, "make a link");
    if (::geteuid() == 0 && ::fchownat(target, name, info.st_uid, info.st_gid, AT_SYMLINK_NOFOLLOW) != 0)
      return Error::System(errno, "set the owner");
    const struct timespec times[] = {info.st_atim, info.st_mtim};
    ::utimensat(target, name, times, AT_SYMLINK_NOFOLLOW);
    return {};
  }

  Status Attributes(int from, int to, const struct stat& info) {
    if (::geteuid() == 0 && ::fchown(to, info.st_uid, info.st_gid) != 0) return Error::System(errno, "set the owner");
    if (::fchmod(to, info.st_mode & (limits_.overlay_layer ? 07777 : 01777)) != 0)
      return Error::System(errno, "set the mode");
    if (limits_.overlay_layer) CAISSON_TRY_VOID(ExtendedAttributes(from, to));
    const struct timespec times[] = {info.st_atim, info.st_mtim};
    ::futimens(to, times);  // where it cannot be kept, the time of the copy is as good
    return {};
  }

  static Status ExtendedAttributes(int from, int to) {
    std::string names(65536, '\0');
    const ssize_t size = ::flistxattr(from, names.data(), names.size());
    if (size < 0) return errno == ENOTSUP ? Status() : Status(Error::System(errno, "list extended attributes"));
    for (size_t at = 0; at < static_cast<size_t>(size);) {
      const char* name = names.c_str() + at;
      at += std::string_view(name).size() + 1;
      if (std::string_view(name).substr(0, 5) != "user.") continue;
      std::string value(65536, '\0');
      const ssize_t length = ::fgetxattr(from, name, value.data(), value.size());
      if (length < 0) return Error::System(errno, "read an extended attribute");
      if (::fsetxattr(to, name, value.data(), static_cast<size_t>(length), 0) != 0)
        return Error::System(errno, "write an extended attribute");
    }
    return {};
  }

  const CopyLimits& limits_;
  int64_t entries_ = 0, bytes_ = 0;
};

}  // namespace

Status CopyTree(int source, int target, const CopyLimits& limits) {
  Copier copier(limits);
  CAISSON_TRY_VOID(copier.Directory(source, target, 0));
  // The top's own mode and attributes count too: an overlay shows them as those of the workspace.
  struct stat info {};
  if (::fstat(source, &info) != 0) return Error::System(errno, "stat");
  if (::geteuid() == 0 && ::fchown(target, info.st_uid, info.st_gid) != 0) return Error::System(errno, "set the owner");
  if (::fchmod(target, info.st_mode & 01777) != 0) return Error::System(errno, "set the mode");
  return {};
}

}  // namespace caisson::session
