// What PID 1 does between a command and its process: finds the program, becomes the workload, and tells the supervisor.
//
// Runs: PID 1, and the workload's process between fork and exec. Nothing here allocates.
#pragma once

#include <sys/resource.h>

#include <climits>
#include <cstdint>

#include "sandbox/command_order.h"
#include "sandbox/control.h"
#include "sandbox/setup.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

void Send(const SetupContext& context, const Report& report);

// The paths at which a command's program may be, in the order in which they are tried.
class ExecCandidates {
 public:
  explicit ExecCandidates(const ReceivedCommand& command);

  // Returns null when no candidate is left. Skips candidates that are longer than any path can be.
  const char* Next();

 private:
  const char* program_;
  const char* rest_ = nullptr;  // the rest of the search path; null: argv names the program by its path
  char path_[PATH_MAX];
};

// Becomes the workload; if the interpreter serves the command (`served`), there is no exec. A failure is reported.
[[noreturn]] void BecomeWorkload(const SetupContext& context, const ReceivedCommand& command, const Command* served);

inline int64_t CpuMicroseconds(const struct rusage& usage) {
  return (int64_t{usage.ru_utime.tv_sec} + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

}  // namespace caisson::sandbox
