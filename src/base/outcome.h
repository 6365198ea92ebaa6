// The workload's fate, as every runtime reports it. Facts only: what they mean for a verdict is for verify/ to say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/violation.h"

namespace caisson {

// What ended a command.
enum class Ending : uint8_t {
  kExited,         // by itself; exit_code is its own
  kSignaled,       // by a signal that was not ours
  kTimeout,        // the supervisor's clock passed the limit and it killed everything
  kMemoryLimit,    // the group ran out of memory and was killed
  kProcessLimit,   // forks kept being refused and the group was killed
  kOutputLimit,    // output passed the cap and the group was killed
  kSyscall,        // a system call that is never forgiven; the group was killed
  kCancelled,      // somebody asked us to stop
  kNotExecutable,  // the command could not be started: exec_errno says why
};

struct Usage {
  int64_t cpu_ms = 0;
  int64_t peak_memory_bytes = 0;
  int64_t processes_peak = 0;
  int64_t output_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t throttled_ms = 0;
};

// One stream's bytes: everything when it fitted, else its head and its tail.
struct CapturedStream {
  std::string head;
  std::string tail;          // follows head directly when nothing was dropped
  uint64_t total_bytes = 0;  // what the workload wrote, as far as it was read
  uint64_t dropped_bytes = 0;
};

enum class OutputStream : uint8_t { kStdout, kStderr };

struct CommandOutcome {
  Ending ending = Ending::kExited;
  int exit_code = 0;   // 128+N for signal N; meaningless for kNotExecutable
  int signal = 0;      // 0 unless kSignaled
  int exec_errno = 0;  // kNotExecutable only
  int64_t duration_ms = 0;
  bool left_processes = false;  // something of it was still running when its main process ended
  CapturedStream stdout_stream;
  CapturedStream stderr_stream;
  Usage usage;
  std::vector<Violation> violations;  // in order of time
  uint64_t violations_dropped = 0;    // beyond the number that is kept
};

}  // namespace caisson
