#include "sandbox/mount_fd.h"

#include <cerrno>
#include <climits>
#include <cstring>

namespace caisson::sandbox {

namespace {

// close() that keeps the errno of the failure being reported.
int FailClosing(int fd) {
  const int saved = errno;
  ::close(fd);
  errno = saved;
  return -1;
}

// Sets the options and then does what they are for.
int Configure(int fs, std::initializer_list<FsOption> options, fsconfig_command purpose) {
  for (const FsOption& option : options) {
    const auto command = option.value == nullptr ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
    if (::fsconfig(fs, command, option.key, option.value, 0) != 0) return -1;
  }
  return ::fsconfig(fs, purpose, nullptr, nullptr, 0);
}

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

int MakeDirectories(int dir_fd, const char* path, mode_t mode) {
  char partial[PATH_MAX];
  const size_t length = ::strlen(path);
  if (length >= sizeof(partial)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  for (size_t i = 0; i <= length; ++i) {
    partial[i] = path[i];
    if ((path[i] == '/' && i > 0) || path[i] == '\0') {
      partial[i] = '\0';
      if (::mkdirat(dir_fd, partial, mode) != 0 && errno != EEXIST) return -1;
      partial[i] = path[i];
    }
  }
  return 0;
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
