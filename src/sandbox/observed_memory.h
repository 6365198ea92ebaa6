// Interprets the memory of an observed call: path, peer and flags. The workload owns this memory, may put anything
// there and may change it at any time; the result goes into the record and permits nothing.
//
// Pure functions of the registers and of the bytes that `memory` returns, so that tests can use memory that no kernel
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
  std::optional<uint32_t> ipv4 = std::nullopt;  // in host order; also set for an IPv6 address that maps an IPv4 one
};

// Peers that belong to the sandbox although they are not on loopback.
using IsServed = std::function<bool(const Peer& peer)>;

// The NUL-terminated path at `address`; nothing when the kernel could not read it or would reject it as too long.
std::optional<std::string> ReadPath(const ReadMemory& memory, uint64_t address);

// The arguments of an open. openat2 has them in memory, where the filter cannot see them.
struct OpenHow {
  uint64_t flags = 0;
  uint64_t resolve = 0;  // openat2's RESOLVE_* bits
};

// How a call of the open family opens; nothing when its memory cannot be read.
std::optional<OpenHow> ReadOpenHow(const ReadMemory& memory, const PathCall& call, Registers args);

// Whether an open with these flags changes the file that it names. O_PATH opens nothing.
bool OpensForWriting(uint64_t flags);

// The path at which bind would make a socket; nothing for addresses that are no path.
std::optional<std::string> ReadBoundPath(const ReadMemory& memory, Registers args);

// The first outside peer that the call names and that is not served.
std::optional<Peer> FindOutsidePeer(const ReadMemory& memory, const AddressCall& call, Registers args,
                                    const IsServed& is_served = nullptr);

// Whether fallocate asks for a file larger than `most`. Sizes that the kernel rejects as invalid do not count.
bool AllocatesMoreThan(int64_t most, Registers args);

}  // namespace caisson::sandbox
