// A violation: something the workload attempted or exceeded, with the evidence for it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace caisson {

enum class ViolationClass : uint8_t {
  kTimeout,
  kMemoryLimit,
  kProcessLimit,
  kOutputLimit,
  kNetworkAccess,
  kFilesystemWrite,
  kSyscall,
};

// The public name of a class, for example "TimeoutViolation".
const char* ClassName(ViolationClass violation_class);

// kProven: a kernel counter, the supervisor's clock or register values prove it.
// kObserved: the detail was read from the workload's memory, which another of its threads could have changed in time.
enum class Confidence : uint8_t { kProven, kObserved };

// Who holds the evidence: a process outside of what contains the workload, or a witness of ours inside foreign walls.
enum class EvidenceSource : uint8_t { kOutside, kInside };

using EvidenceValue = std::variant<int64_t, std::string>;

struct Violation {
  ViolationClass violation_class = ViolationClass::kSyscall;
  std::string reason;  // machine-readable, for example "scratch_limit" or "syscall.mount"
  Confidence confidence = Confidence::kProven;
  int64_t time_ms = 0;  // since the command started
  pid_t pid = 0;        // inside the sandbox; 0 when it belongs to the whole group
  std::vector<std::pair<std::string, EvidenceValue>> evidence;
  EvidenceSource source = EvidenceSource::kOutside;
  int64_t limit = -1;      // the limit that was passed; -1 when there is none
  std::string suggestion;  // what a user can do about it; may be empty
  // How many attempts this entry stands for: itself and those of its class and reason that are not listed.
  int64_t count = 1;
};

// A probe: an attempt that ordinary libraries make and whose refusal they tolerate. It was refused and had no effect,
// so it is listed in the result and never counts against the workload. Equal probes make one notice.
struct Notice {
  std::string probe;    // the profile's entry: a reason such as "syscall.numa", or a path
  std::string why;      // the profile's description of the library that makes it
  int64_t count = 0;    // how often
  int64_t time_ms = 0;  // of the first, since the command started
  pid_t pid = 0;        // of the first, inside the sandbox
  std::vector<std::pair<std::string, EvidenceValue>> evidence;  // of the first
};

}  // namespace caisson
