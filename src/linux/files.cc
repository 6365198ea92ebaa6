#include "linux/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/units.h"

namespace caisson::linux_sys {

Result<UniqueFd> Open(const std::string& path, int flags) { return OpenAt(AT_FDCWD, path.c_str(), flags); }

Result<UniqueFd> OpenAt(int dir_fd, const char* path, int flags) {
  UniqueFd fd(::openat(dir_fd, path, flags | O_CLOEXEC, 0600));
  if (!fd) return Error::System(errno, std::string("open ") + path);
  return fd;
}

Result<UniqueFd> OpenOutput(const std::string& path, int flags) {
  const auto is_below = [&](std::string_view directory) { return path.compare(0, directory.size(), directory) == 0; };
  const bool stream =
      path == "/dev/stdout" || path == "/dev/stderr" || is_below("/dev/fd/") || is_below("/proc/self/fd/");
  UniqueFd fd(::open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC | (stream ? 0 : O_NOFOLLOW), 0644));
  if (fd) return fd;
  if (errno == ELOOP && !stream) return Error::Invalid(path + ": is a symbolic link, which is not followed");
  return Error::Invalid(path + ": " + std::strerror(errno));
}

Result<std::string> ReadSmallFile(int dir_fd, const char* path, size_t limit) {
  CAISSON_TRY(UniqueFd fd, OpenAt(dir_fd, path, O_RDONLY));
  std::string text;
  size_t size = 0;
  while (size < limit) {
    // Grows by doubling, so that a generous limit costs nothing for small files.
    if (size == text.size()) text.resize(std::min(limit, std::max<size_t>(4096, 2 * size)));
    const ssize_t count = ::read(fd.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::System(errno, std::string("read ") + path);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  text.resize(size);
  return text;
}

Status WriteSmallFile(int dir_fd, const char* path, std::string_view text) {
  CAISSON_TRY(UniqueFd fd, OpenAt(dir_fd, path, O_WRONLY));
  const ssize_t written = ::write(fd.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    return Error::System(written < 0 ? errno : EIO, std::string("write \"") + std::string(text) + "\" to " + path);
  }
  return {};
}

Result<std::string> ReadDocument(const std::string& path, size_t max_bytes) {
  // Do not wait for a FIFO's writer, and do not acquire a controlling terminal.
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return Error::Invalid(path + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return Error::Invalid(path + ": not a regular file");
  // One byte more than allowed shows that the file is too large, even if it grows meanwhile.
  std::string text(std::min(static_cast<size_t>(info.st_size), max_bytes) + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::Invalid(path + ": " + std::strerror(errno));
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > max_bytes) return Error::Invalid(path + ": larger than " + FormatSize(static_cast<int64_t>(max_bytes)));
  if (size == text.size()) return Error::Invalid(path + ": grew while it was read");
  text.resize(size);
  return text;
}

Result<UniqueFd> OpenUnnamed(const std::string& directory) {
  if (directory.empty()) {
    UniqueFd file(::memfd_create("unnamed", MFD_CLOEXEC));
    if (!file) return Error::System(errno, "make a memory file");
    return file;
  }
  UniqueFd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR) return Error::System(errno, "make a file in " + directory);
  // A file system without O_TMPFILE.
  std::string name = directory + "/unnamed-XXXXXX";
  file.Reset(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return Error::System(errno, "make a file in " + directory);
  ::unlink(name.c_str());
  return file;
}

Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::System(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Result<std::string> ReadAt(int fd, int64_t offset, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count =
        ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Error::System(count < 0 ? errno : EIO, "read a file");
    done += static_cast<size_t>(count);
  }
  return text;
}

Result<int64_t> AvailableMemory() {
  CAISSON_TRY(const std::string text, ReadSmallFile(AT_FDCWD, "/proc/meminfo"));
  const int64_t kibibytes = FindNumber(text, "MemAvailable:");
  if (kibibytes < 0) return Error::System(ENODATA, "/proc/meminfo has no MemAvailable");
  return kibibytes * 1024;
}

int64_t FindNumber(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
    if (!key.empty()) {
      if (line.size() <= key.size() || line.substr(0, key.size()) != key || line[key.size()] != ' ') continue;
      line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ', key.size())));
    }
    int64_t number = -1;
    std::from_chars(line.data(), line.data() + line.size(), number);
    return number;
  }
  return -1;
}

}  // namespace caisson::linux_sys
