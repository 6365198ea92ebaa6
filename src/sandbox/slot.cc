#include "sandbox/slot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "linux/files.h"

namespace caisson::sandbox {

namespace {

Result<UniqueFd> OpenLockFile(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return Error::System(errno, "make " + directory);
  UniqueFd dir(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) return Error::System(errno, "open " + directory);
  struct stat info {};
  if (::fstat(dir.get(), &info) != 0) return Error::System(errno, "stat " + directory);
  // SECURITY: in a shared directory any user may have created this name first; locks in another user's file prove
  // nothing.
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return Error::Denied(directory +
                         " belongs to somebody else or is writable by others; remove it or set XDG_RUNTIME_DIR");
  }
  UniqueFd fd(::openat(dir.get(), "slots", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return Error::System(errno, "open " + directory + "/slots");
  return fd;
}

bool TryLock(int fd, int number) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = number;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

}  // namespace

std::string Slot::DefaultDirectory() {
  if (::geteuid() == 0) return "/run/caisson";
  if (const char* runtime = ::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && runtime[0] == '/') {
    return std::string(runtime) + "/caisson";
  }
  return "/tmp/caisson-" + std::to_string(::geteuid());
}

Result<Slot> Slot::Acquire(const std::string& directory) {
  CAISSON_TRY(UniqueFd fd, OpenLockFile(directory));
  // Starts at a pseudo-random slot: from the lowest, each of a thousand sandboxes would try all taken slots, and each
  // try walks the kernel's list of locks.
  const int start = static_cast<int>(static_cast<unsigned>(::getpid()) * 2654435761U % kSlots);
  for (int tried = 0; tried < kSlots; ++tried) {
    const int number = (start + tried) % kSlots;
    if (TryLock(fd.get(), number)) return Slot(std::move(fd), number);
  }
  return Error::Unsupported("all " + std::to_string(kSlots) +
                            " sandbox slots of this machine are in use; wait for some to end");
}

Result<Slot> Slot::AcquireNumber(const std::string& directory, int number) {
  CAISSON_TRY(UniqueFd fd, OpenLockFile(directory));
  if (!TryLock(fd.get(), number)) return Error::Unsupported("slot " + std::to_string(number) + " is in use");
  return Slot(std::move(fd), number);
}

}  // namespace caisson::sandbox
