#include "session/stamp.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "session/tree.h"

namespace caisson::session {

Result<Stamp> Stamp::Parse(std::string_view text) {
  Stamp stamp;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), stamp.ctime_ns);
  if (error != std::errc() || end != text.data() + text.size() || stamp.ctime_ns < 0) {
    return Error::Invalid("the session's stamp is not a number of nanoseconds");
  }
  return stamp;
}

Result<Stamp> TakeStamp(int directory_fd) {
  UniqueFd file(::openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {  // a file system without O_TMPFILE
    const std::string name = ".caisson-stamp-" + std::to_string(::getpid());
    file.Reset(::openat(directory_fd, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file) ::unlinkat(directory_fd, name.c_str(), 0);
  }
  if (file) {
    CAISSON_TRY(const std::optional<EntryStat> stat, StatAt(file.get(), ""));
    if (stat) return Stamp{stat->ctime_ns};
  }
  struct timespec now {};
  if (::clock_gettime(CLOCK_REALTIME, &now) != 0) return Error::System(errno, "read the clock");
  return Stamp{now.tv_sec * 1'000'000'000 + now.tv_nsec - kClockSlackNs};
}

}  // namespace caisson::session
