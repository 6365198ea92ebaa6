// The one clock verdicts are made with: monotonic, never set back by anybody.
#pragma once

#include <time.h>

#include <cstdint>

namespace caisson {

inline int64_t MonotonicNanos() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace caisson
