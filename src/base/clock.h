// Two clocks. Verdicts use the monotonic one, which cannot be set back; the wall clock is for people and logs.
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

// Processor time of the calling thread.
inline int64_t ThreadCpuNanos() {
  struct timespec used {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
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
