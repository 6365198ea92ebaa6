// The helper's own sandbox: what is left to a process that has nothing to do but read bytes it already has and write to
// a pipe that is already open. Simpler than the sandbox for workloads, because there is no program to start in it.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace caisson::intake::unpack {

// From here on this process, which must have one thread, can compute, ask for memory up to `memory_bytes`, write to
// open descriptors and end. It runs as nobody if it was root, and dies of anything else it asks the kernel for. There
// is no way back. On an error some of the walls stand, and no hostile byte may be read.
Status Confine(uint64_t memory_bytes, uint64_t cpu_seconds);

}  // namespace caisson::intake::unpack
