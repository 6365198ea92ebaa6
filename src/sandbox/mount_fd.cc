#include "sandbox/mount_fd.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "linux/syscalls.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

// Closes `fd` and keeps the errno of the failure that is being reported.
int FailClosing(int fd) {
  const int saved = errno;
  ::close(fd);
  errno = saved;
  return -1;
}

// Sets the options and then issues the command `purpose`.
int Configure(int fs, std::initializer_list<FsOption> options, fsconfig_command purpose) {
  for (const FsOption& option : options) {
    const auto command = option.value == nullptr ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
    if (::fsconfig(fs, command, option.key, option.value, 0) != 0) return -1;
  }
  return ::fsconfig(fs, purpose, nullptr, nullptr, 0);
}

// A component of a path, terminated by NUL.
class Name {
 public:
  explicit Name(std::string_view text) : fits_(text.size() <= NAME_MAX) {
    if (!fits_) return;
    text_[text.copy(text_, NAME_MAX)] = '\0';
  }
  const char* get() const { return fits_ ? text_ : nullptr; }

 private:
  bool fits_;
  char text_[NAME_MAX + 1];
};

UniqueFd MakeOneDirectory(int parent, const char* name) {
  if (::mkdirat(parent, name, 0755) != 0 && errno != EEXIST) return UniqueFd();
  return OpenBeneath(parent, name, O_PATH | O_DIRECTORY);
}

// Creates one component at a time, each below the descriptor of the previous one.
UniqueFd MakeEachDirectory(int dir_fd, std::string_view path) {
  UniqueFd at;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const Name name(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    if (name.get() == nullptr) return errno = ENAMETOOLONG, UniqueFd();
    const int parent = at ? at.get() : dir_fd;
    UniqueFd next = OpenBeneath(parent, name.get(), O_PATH | O_DIRECTORY);
    if (!next && errno == ENOENT) next = MakeOneDirectory(parent, name.get());
    if (!next) return next;
    at = std::move(next);
  }
  return at;
}

UniqueFd MakeMountPoint(int dir_fd, std::string_view path, bool directory) {
  if (directory) return MakeEachDirectory(dir_fd, path);
  UniqueFd made;
  const size_t slash = path.rfind('/');
  if (slash != path.npos) {
    made = MakeDirectories(dir_fd, path.substr(0, slash));
    if (!made) return made;
  }
  const Name name(path.substr(slash == path.npos ? 0 : slash + 1));
  if (name.get() == nullptr) return errno = ENAMETOOLONG, UniqueFd();
  return UniqueFd(
      ::openat(made ? made.get() : dir_fd, name.get(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444));
}

#ifdef CAISSON_MUTATIONS
// Opens `path` following every link, and creates what is missing.
UniqueFd WalkByPath(int dir_fd, std::string_view path, bool directory) {
  char partial[PATH_MAX];
  for (size_t i = 1; i <= path.size(); ++i) {
    if (i < path.size() ? path[i] != '/' : !directory) continue;
    partial[path.copy(partial, i)] = '\0';
    if (::mkdirat(dir_fd, partial, 0755) != 0 && errno != EEXIST) return UniqueFd();
  }
  partial[path.copy(partial, sizeof(partial) - 1)] = '\0';
  if (!directory) return UniqueFd(::openat(dir_fd, partial, O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
  return UniqueFd(::openat(dir_fd, partial, O_PATH | O_DIRECTORY | O_CLOEXEC));
}
#endif

}  // namespace

int ChangeFilesystem(int mount_fd, std::initializer_list<FsOption> options) {
  const int fs = ::fspick(mount_fd, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
  if (fs < 0) return -1;
  if (Configure(fs, options, FSCONFIG_CMD_RECONFIGURE) != 0) return FailClosing(fs);
  ::close(fs);
  return 0;
}

int NewFilesystem(const char* type, std::initializer_list<FsOption> options, unsigned attributes) {
  const int fs = ::fsopen(type, FSOPEN_CLOEXEC);
  if (fs < 0) return -1;
  if (Configure(fs, options, FSCONFIG_CMD_CREATE) != 0) return FailClosing(fs);
  const int mount = ::fsmount(fs, FSMOUNT_CLOEXEC, attributes);
  if (mount < 0) return FailClosing(fs);
  ::close(fs);
  return mount;
}

int CloneTree(int dir_fd, const char* path, unsigned flags, unsigned attributes) {
  const int tree = ::open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
  if (tree < 0 || attributes == 0) return tree;
  struct mount_attr attr {};
  attr.attr_set = attributes;
  attr.propagation = MS_PRIVATE;
  if (::mount_setattr(tree, "", AT_EMPTY_PATH | (flags & AT_RECURSIVE), &attr, sizeof(attr)) != 0)
    return FailClosing(tree);
  return tree;
}

int AttachAndClose(int mount_fd, int root_fd, const char* target) {
  if (mount_fd < 0) return -1;
  if (::move_mount(mount_fd, "", root_fd, target, MOVE_MOUNT_F_EMPTY_PATH) != 0) return FailClosing(mount_fd);
  ::close(mount_fd);
  return 0;
}

UniqueFd OpenBeneath(int dir_fd, const char* path, int flags) {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(flags) | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(dir_fd, path, how));
}

UniqueFd MakeDirectories(int dir_fd, std::string_view path) {
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("mount_targets")) return WalkByPath(dir_fd, path, true);
#endif
  char whole[PATH_MAX];
  if (path.size() >= sizeof(whole)) return errno = ENAMETOOLONG, UniqueFd();
  whole[path.copy(whole, path.size())] = '\0';
  UniqueFd found = OpenBeneath(dir_fd, whole, O_PATH | O_DIRECTORY);
  if (found || errno != ENOENT) return found;
  return MakeEachDirectory(dir_fd, path);
}

UniqueFd OpenMountPoint(int dir_fd, const char* path, bool directory, bool may_make) {
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("mount_targets")) return WalkByPath(dir_fd, path, directory);
#endif
  UniqueFd place = OpenBeneath(dir_fd, path, O_PATH);
  if (!place && errno == ENOENT && may_make) place = MakeMountPoint(dir_fd, path, directory);
  struct stat info {};
  if (!place || ::fstat(place.get(), &info) != 0) return UniqueFd();
  if (directory ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode)) return place;
  // O_PATH with O_NOFOLLOW opens a link at the end of the path itself.
  errno = S_ISLNK(info.st_mode) ? ELOOP : S_ISDIR(info.st_mode) ? EISDIR : S_ISREG(info.st_mode) ? ENOTDIR : ENOTSUP;
  return UniqueFd();
}

int AttachAt(UniqueFd mount, const UniqueFd& place) {
  if (!mount) return -1;
  return ::move_mount(mount.get(), "", place.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

int WriteFileAt(int dir_fd, const char* path, const char* bytes, size_t size, mode_t mode) {
  const int fd = ::openat(dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return -1;
  while (size > 0) {
    const ssize_t written = ::write(fd, bytes, size);
    if (written < 0) return FailClosing(fd);
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  ::close(fd);
  return 0;
}

int MakeMountPointFile(int dir_fd, const char* path) {
  const int fd = ::openat(dir_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444);
  if (fd < 0) return -1;
  ::close(fd);
  return 0;
}

}  // namespace caisson::sandbox
