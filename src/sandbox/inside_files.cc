#include "sandbox/inside_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <utility>

#include "linux/syscalls.h"
#include "sandbox/file_owner.h"

namespace caisson::sandbox {

namespace {

// A directory that the workload filled is listed up to this size.
constexpr size_t kMostEntries = 100'000;
constexpr int kMostDepth = 4096;

Error Failed(int error, const char* what, const std::string& path) {
  return Error::System(error, std::string(what) + " " + path);
}

// Files that the kernel makes up, such as those of /proc, are not the workload's.
bool IsMadeUp(int fd) {
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return true;
  return info.f_type == PROC_SUPER_MAGIC || info.f_type == SYSFS_MAGIC || info.f_type == DEVPTS_SUPER_MAGIC ||
         info.f_type == CGROUP_SUPER_MAGIC || info.f_type == CGROUP2_SUPER_MAGIC;
}

InsideFileInfo InfoOf(std::string name, const struct stat& info) {
  InsideFileInfo result;
  result.name = std::move(name);
  result.mode = info.st_mode;
  result.size = info.st_size;
  result.modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return result;
}

std::string ReadLink(int directory, const char* name) {
  char target[PATH_MAX];
  const ssize_t size = ::readlinkat(directory, name, target, sizeof(target));
  return size < 0 ? std::string() : std::string(target, static_cast<size_t>(size));
}

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

Directory OpenDirectory(UniqueFd fd) {
  Directory directory(::fdopendir(fd.get()), &::closedir);
  if (directory) (void)fd.Release();
  return directory;
}

bool IsDots(const char* name) { return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')); }

// Removes what `directory` holds. Recursion is bounded: a deeper tree is an error.
bool RemoveContents(UniqueFd fd, int depth) {
  if (depth > kMostDepth) return errno = ELOOP, false;
  const Directory directory = OpenDirectory(std::move(fd));
  if (!directory) return false;
  const int at = ::dirfd(directory.get());
  for (errno = 0; const struct dirent* entry = ::readdir(directory.get()); errno = 0) {
    if (IsDots(entry->d_name) || ::unlinkat(at, entry->d_name, 0) == 0) continue;
    if (errno != EISDIR && errno != EPERM) return false;
    UniqueFd below(::openat(at, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!below || !RemoveContents(std::move(below), depth + 1)) return false;
    if (::unlinkat(at, entry->d_name, AT_REMOVEDIR) != 0) return false;
  }
  return errno == 0;
}

}  // namespace

UniqueFd InsideFiles::Resolve(const std::string& path, int flags, mode_t mode) const {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? mode & 0777 : 0;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(root_, path.c_str(), how));
}

InsideFileInfo InsideFiles::Describe(int parent, const std::string& path, std::string name,
                                     const struct stat& info) const {
  InsideFileInfo result = InfoOf(std::move(name), info);
  if (!S_ISLNK(info.st_mode)) return result;
  result.link_target = ReadLink(parent, result.name.c_str());
  struct stat target {};
  const UniqueFd there = Resolve(path, O_PATH);
  if (there && ::fstat(there.get(), &target) == 0) result.target_mode = target.st_mode;
  return result;
}

Result<UniqueFd> InsideFiles::Open(const std::string& path, OpenFor use, mode_t mode) const {
  const FileOwner as_owner(owner_);
  if (!as_owner.holds()) return Error::System(EPERM, "act as the sandbox's user");
  if (path.empty() || path[0] != '/') return Error::Invalid(path + ": the path is not absolute");
  const int flags = use == OpenFor::kReading ? O_RDONLY : O_WRONLY | O_CREAT;
  // O_NONBLOCK: a pipe without a reader or writer does not stop the supervisor. The file is truncated only once it is
  // known to be one.
  UniqueFd fd = Resolve(path, flags | O_NONBLOCK | O_NOCTTY, mode);
  // A pipe that no process reads, or a socket.
  if (!fd && errno == ENXIO) return Error::Invalid(path + ": neither a regular file nor a directory");
  if (!fd) return Failed(errno, "open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Failed(errno, "stat", path);
  if (!S_ISREG(info.st_mode) && !(S_ISDIR(info.st_mode) && use == OpenFor::kReading))
    return Error::Invalid(path + ": neither a regular file nor a directory");
  if (IsMadeUp(fd.get())) return Error::Denied(path + ": made up by the kernel, not a file of the sandbox");
  if (use == OpenFor::kWriting && ::ftruncate(fd.get(), 0) != 0) return Failed(errno, "truncate", path);
  return fd;
}

Result<InsideFiles::Place> InsideFiles::Find(const std::string& path) const {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const size_t slash = trimmed.rfind('/');
  if (slash == std::string::npos || trimmed[0] != '/') return Error::Invalid(path + ": the path is not absolute");
  Place place;
  place.name = trimmed.substr(slash + 1);
  if (place.name.empty() || IsDots(place.name.c_str())) return Error::Invalid(path + ": names no entry of a directory");
  place.parent = Resolve(trimmed.substr(0, slash + 1), O_PATH | O_DIRECTORY);
  if (!place.parent) return Failed(errno, "open the directory of", path);
  if (IsMadeUp(place.parent.get())) return Error::Denied(path + ": made up by the kernel, not a file of the sandbox");
  return place;
}

Result<InsideFileInfo> InsideFiles::Stat(const std::string& path) const {
  const FileOwner as_owner(owner_);
  if (!as_owner.holds()) return Error::System(EPERM, "act as the sandbox's user");
  struct stat info {};
  if (path == "/") {
    if (::fstat(root_, &info) != 0) return Failed(errno, "stat", path);
    return InfoOf("/", info);
  }
  CAISSON_TRY(Place place, Find(path));
  if (::fstatat(place.parent.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return Failed(errno, "stat", path);
  return Describe(place.parent.get(), path, std::move(place.name), info);
}

Result<std::vector<InsideFileInfo>> InsideFiles::List(const std::string& path) const {
  const FileOwner as_owner(owner_);
  if (!as_owner.holds()) return Error::System(EPERM, "act as the sandbox's user");
  UniqueFd fd = Resolve(path, O_RDONLY | O_DIRECTORY);
  if (!fd) return Failed(errno, "open", path);
  if (IsMadeUp(fd.get())) return Error::Denied(path + ": made up by the kernel, not a directory of the sandbox");
  const Directory directory = OpenDirectory(std::move(fd));
  if (!directory) return Failed(errno, "list", path);
  std::vector<InsideFileInfo> entries;
  for (errno = 0; const struct dirent* entry = ::readdir(directory.get()); errno = 0) {
    if (IsDots(entry->d_name)) continue;
    if (entries.size() == kMostEntries) return Error::Invalid(path + ": has more entries than can be listed");
    struct stat info {};
    const int at = ::dirfd(directory.get());
    if (::fstatat(at, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone meanwhile
    entries.push_back(Describe(at, path + "/" + entry->d_name, entry->d_name, info));
  }
  if (errno != 0) return Failed(errno, "list", path);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

Status InsideFiles::MakeDirectories(const std::string& path, mode_t mode) const {
  const FileOwner as_owner(owner_);
  if (!as_owner.holds()) return Error::System(EPERM, "act as the sandbox's user");
  if (path.empty() || path[0] != '/') return Error::Invalid(path + ": the path is not absolute");
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!Resolve(part, O_PATH | O_DIRECTORY)) {
      CAISSON_TRY(const Place place, Find(part));
      if (::mkdirat(place.parent.get(), place.name.c_str(), mode & 0777) != 0) {
        const int error = errno;
        // Made meanwhile, or something that is no directory and leads to none.
        const bool in_the_way = error == EEXIST && !Resolve(part, O_PATH | O_DIRECTORY);
        if (in_the_way && end != std::string::npos) return Failed(ENOTDIR, "make the directory", path);
        if (in_the_way || error != EEXIST) return Failed(error, "make the directory", part);
      }
    }
    if (end == std::string::npos) return {};
  }
}

Status InsideFiles::MakeLink(const std::string& path, const std::string& target) const {
  const FileOwner as_owner(owner_);
  if (!as_owner.holds()) return Error::System(EPERM, "act as the sandbox's user");
  CAISSON_TRY(const Place place, Find(path));
  if (::symlinkat(target.c_str(), place.parent.get(), place.name.c_str()) != 0)
    return Failed(errno, "make the link", path);
  return {};
}

Status InsideFiles::Remove(const std::string& path) const {
  const FileOwner as_owner(owner_);
  if (!as_owner.holds()) return Error::System(EPERM, "act as the sandbox's user");
  CAISSON_TRY(const Place place, Find(path));
  const char* const name = place.name.c_str();
  if (::unlinkat(place.parent.get(), name, 0) == 0) return {};
  if (errno != EISDIR && errno != EPERM) return Failed(errno, "remove", path);
  UniqueFd directory(::openat(place.parent.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory || !RemoveContents(std::move(directory), 0) ||
      ::unlinkat(place.parent.get(), name, AT_REMOVEDIR) != 0) {
    return Failed(errno, "remove", path);
  }
  return {};
}

}  // namespace caisson::sandbox
