#include "sandbox/private_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "base/unique_fd.h"
#include "linux/syscalls.h"

namespace caisson::sandbox {

namespace {

constexpr int kMaxDepth = 64;

struct KernelDirent {  // linux_dirent64, which glibc does not declare
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
  char name[1];
};

UniqueFd OpenBelow(int directory, const char* name, uint64_t flags) {
  struct open_how how {};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(directory, name, how));
}

int CopyFile(int source_dir, int target_dir, const char* name, mode_t mode) {
  UniqueFd from = OpenBelow(source_dir, name, O_RDONLY);
  UniqueFd to(::openat(target_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode & 0777));
  if (!from || !to) return -1;
  char chunk[32768];
  for (;;) {
    const ssize_t size = ::read(from.get(), chunk, sizeof(chunk));
    if (size == 0) return 0;
    if (size < 0 || ::write(to.get(), chunk, static_cast<size_t>(size)) != size) return -1;
  }
}

int CopyLink(int source_dir, int target_dir, const char* name) {
  char target[PATH_MAX];
  const ssize_t length = ::readlinkat(source_dir, name, target, sizeof(target) - 1);
  if (length < 0) return -1;
  target[length] = '\0';
  return ::symlinkat(target, target_dir, name);
}

int CopyDirectory(int source_dir, int target_dir, uid_t owner, int depth);

int CopyEntry(int source_dir, int target_dir, const char* name, uid_t owner, int depth) {
  struct stat info {};
  if (::fstatat(source_dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : -1;
  int result = 0;
  if (S_ISREG(info.st_mode)) {
    result = CopyFile(source_dir, target_dir, name, info.st_mode);
  } else if (S_ISLNK(info.st_mode)) {
    result = CopyLink(source_dir, target_dir, name);
  } else if (S_ISDIR(info.st_mode)) {
    if (::mkdirat(target_dir, name, (info.st_mode & 0777) | 0700) != 0) return -1;
    UniqueFd from = OpenBelow(source_dir, name, O_RDONLY | O_DIRECTORY);
    UniqueFd to = OpenBelow(target_dir, name, O_RDONLY | O_DIRECTORY);
    result = from && to ? CopyDirectory(from.get(), to.get(), owner, depth + 1) : -1;
  } else {
    return 0;
  }
  if (result == 0 && owner != kKeepOwner) result = ::fchownat(target_dir, name, owner, owner, AT_SYMLINK_NOFOLLOW);
  return result;
}

int CopyDirectory(int source_dir, int target_dir, uid_t owner, int depth) {
  if (depth > kMaxDepth) {
    errno = ELOOP;
    return -1;
  }
  alignas(KernelDirent) char entries[4096];
  for (;;) {
    const long size = ::syscall(SYS_getdents64, source_dir, entries, sizeof(entries));
    if (size <= 0) return static_cast<int>(size);
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const KernelDirent*>(entries + at);
      at += entry->size;
      if (std::strcmp(entry->name, ".") == 0 || std::strcmp(entry->name, "..") == 0) continue;
      if (CopyEntry(source_dir, target_dir, entry->name, owner, depth) != 0) return -1;
    }
  }
}

}  // namespace

int CopyTree(int source_dir, int target_dir, uid_t owner) {
  // The given descriptors may be O_PATH, which cannot be read.
  UniqueFd from = OpenBelow(source_dir, ".", O_RDONLY | O_DIRECTORY);
  if (!from) return -1;
  return CopyDirectory(from.get(), target_dir, owner, 0);
}

}  // namespace caisson::sandbox
