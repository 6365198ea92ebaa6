#include "linux/files.h"

#include <fcntl.h>
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
    // By doubling: a limit that is there for the worst case costs nothing in the usual one.
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
  // Not waiting for a FIFO's writer, and not becoming a terminal's owner.
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return Error::Invalid(path + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return Error::Invalid(path + ": not a regular file");
  // A byte more than it may have shows that there is more, also when it grows meanwhile.
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

int64_t FindNumber(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
    if (!key.empty()) {
      if (line.size() <= key.size() || line.substr(0, key.size()) != key || line[key.size()] != ' ') continue;
      line.remove_prefix(key.size() + 1);
    }
    int64_t number = -1;
    std::from_chars(line.data(), line.data() + line.size(), number);
    return number;
  }
  return -1;
}

}  // namespace caisson::linux_sys
