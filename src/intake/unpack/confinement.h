// The helper's own sandbox, for a process that only reads bytes in memory and writes to an open pipe. Simpler than the
// sandbox for workloads, because it starts no program.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace caisson::intake::unpack {

// From here on this process, which must have one thread, can compute, ask for memory up to `memory_bytes`, write to
// open descriptors, read from them if `reads`, and end. It runs as the user "nobody" if it was root, and is killed for
// any other system call. This cannot be undone. After an error only some walls exist, and no hostile byte may be read.
Status Confine(uint64_t memory_bytes, uint64_t cpu_seconds, bool reads = false);

}  // namespace caisson::intake::unpack
