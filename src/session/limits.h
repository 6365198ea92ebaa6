// Bounds on the work that a session's tree can cause. Exceeding one is an error (kExhausted) that names the bound; a
// diff is never cut short.
#pragma once

#include <cstddef>
#include <cstdint>

namespace caisson::session {

struct DiffLimits {
  int64_t entries = 1'000'000;             // looked at, in both trees together
  int depth = 256;                         // directories below each other; two descriptors are open for each
  size_t path_bytes = 4095;                // of one path
  int64_t file_bytes = int64_t{1} << 30;   // a larger file is refused (too_large) without being read
  int64_t read_bytes = int64_t{16} << 30;  // of all files together
};

struct PatchLimits {
  int64_t file_bytes = 4 << 20;    // a larger file is named, not shown
  int64_t patch_bytes = 64 << 20;  // of the whole patch: more is an error
};

}  // namespace caisson::session
