// Copies a directory tree: regular files (shared with the original where the file system can), directories and symbolic
// links. Devices, FIFOs and sockets are left out. Owners are kept where the caller may set them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace caisson::session {

struct CopyLimits {
  int64_t most_bytes = INT64_MAX;
  int64_t most_entries = 4'000'000;
  bool overlay_layer = false;  // whiteouts and the overlay's own attributes are copied too, and times are kept
};

// `target` is an empty directory. Links are never followed.
Status CopyTree(int source, int target, const CopyLimits& limits);

}  // namespace caisson::session
