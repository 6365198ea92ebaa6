#include "base/clock.h"

#include <cstdio>

namespace caisson {

std::string UtcTime(int64_t unix_millis) {
  const time_t seconds = unix_millis / 1'000;
  struct tm utc {};
  ::gmtime_r(&seconds, &utc);
  char text[48];
  const size_t length = ::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + length, sizeof(text) - length, ".%03dZ", static_cast<int>(unix_millis % 1'000));
  return text;
}

std::string UtcNow() { return UtcTime(UnixMillis()); }

}  // namespace caisson
