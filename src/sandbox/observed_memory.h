// What the memory of an observed call says: which path, which peer, which flags. It is the workload's and may say
// anything, and something else a moment later; what is made of it here goes into the record and decides nothing.
//
// Pure functions of the registers and of what `memory` gives, so that they can be tried with memory that no kernel
// would show.
#pragma once

#include <linux/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sandbox/observed_calls.h"

namespace caisson::sandbox {

// Fills `to` with `size` bytes from `address`; false when not all of them can be read.
using ReadMemory = std::function<bool(uint64_t address, void* to, size_t size)>;

// Registers of a call, in the order of its arguments.
using Registers = const __u64 (&)[6];

// A peer other than the sandbox's own loopback.
struct Peer {
  std::string address;  // as inet_ntop writes it
  uint16_t port = 0;
};

// The NUL-terminated path at `address`; nothing when the kernel could not read it or would find it too long.
std::optional<std::string> ReadPath(const ReadMemory& memory, uint64_t address);

// Whether openat2 is asked to change something: its flags are in memory, where the filter cannot see them.
bool OpensForWriting(const ReadMemory& memory, Registers args);

// The path at which bind would make a socket; nothing for addresses that are no path.
std::optional<std::string> ReadBoundPath(const ReadMemory& memory, Registers args);

// The first outside peer that the call names.
std::optional<Peer> FindOutsidePeer(const ReadMemory& memory, const AddressCall& call, Registers args);

// Whether fallocate is asked for a file larger than `most`. Sizes that the kernel calls invalid ask for nothing.
bool AllocatesMoreThan(int64_t most, Registers args);

}  // namespace caisson::sandbox
