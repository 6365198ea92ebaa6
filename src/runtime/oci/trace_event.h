// The messages of gVisor's runtime monitoring (`trace_session` of runsc, sink "remote"): one packet per system call, a
// header and a protobuf message. Only what the judge needs is decoded; unknown fields are skipped.
//
// SECURITY: the Sentry writes the packets, but paths, addresses and registers in them are the workload's choice, and an
// escape into the Sentry chooses everything. The decoder is bounded by the packet and refuses what is malformed.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace caisson::runtime::oci {

// The largest packet that is accepted; the largest that gVisor sends for the subscribed calls has three paths.
inline constexpr size_t kMaxTracePacket = size_t{64} << 10;

// A system call that returned.
struct TraceEvent {
  int32_t number = -1;
  std::array<uint64_t, 6> arguments = {};  // pointers of calls with a path or an address are not known and 0
  int64_t result = 0;
  int error = 0;          // errno; 0: the call succeeded
  pid_t pid = 0;          // of the process, inside; 0 where gVisor does not say
  std::string cwd;        // of the process; may be empty
  std::string directory;  // the path of the directory descriptor; may be empty
  std::string path;       // of open, openat and creat
  std::string address;    // of connect and bind: the bytes of the socket address
  uint32_t dropped = 0;   // packets that gVisor could not send, since the session began
};

Result<TraceEvent> DecodeTraceEvent(std::string_view packet);

// The version in a handshake.
Result<uint64_t> DecodeTraceHandshake(std::string_view packet);
// What the sink answers to it.
inline constexpr std::string_view kTraceHandshakeAnswer("\x08\x01", 2);
inline constexpr uint64_t kTraceVersion = 1;

}  // namespace caisson::runtime::oci
