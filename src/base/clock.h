// Two clocks. Verdicts are made with the monotonic one, which nobody can set back; the other is for people and logs.
#pragma once

#include <time.h>

#include <cstdint>
#include <string>

namespace caisson {

inline int64_t MonotonicNanos() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Milliseconds since 1970, as the store keeps times.
inline int64_t UnixMillis() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000 + now.tv_nsec / 1'000'000;
}

// "2030-01-31T12:00:00.000Z": of one length, so that timestamps sort as text.
std::string UtcNow();
std::string UtcTime(int64_t unix_millis);

}  // namespace caisson
