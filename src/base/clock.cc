#include "base/clock.h"

#include <cstdio>

namespace caisson {

std::string UtcNow() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  struct tm utc {};
  ::gmtime_r(&now.tv_sec, &utc);
  char text[48];
  const size_t length = ::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + length, sizeof(text) - length, ".%03ldZ", now.tv_nsec / 1'000'000);
  return text;
}

}  // namespace caisson
