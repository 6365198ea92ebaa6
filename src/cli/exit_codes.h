// The exit codes of all commands. They are public: docs/user lists them.
#pragma once

#include <signal.h>

#include <cerrno>

#include "base/outcome.h"
#include "verify/result.h"

namespace caisson::cli {

// Of every command but run.
inline constexpr int kExitDone = 0;            // verify: pass
inline constexpr int kExitFailed = 1;          // verify: fail or cancelled; else: what was looked at is faulty
inline constexpr int kExitUsage = 2;           // the command line or the request is wrong
inline constexpr int kExitRefused = 3;         // by policy, or by the service
inline constexpr int kExitInfrastructure = 4;  // we failed
inline constexpr int kExitState = 5;           // the job is not in a state that allows it

// Of run, besides the command's own, 128+N for signal N, and with it 137 for the memory limit and 159 for a forbidden
// system call.
inline constexpr int kExitRunTimeout = 124;
inline constexpr int kExitRunRefused = 125;  // not set up, or refused by policy
inline constexpr int kExitRunNotExecutable = 126;
inline constexpr int kExitRunNotFound = 127;

inline int ExitCodeOf(verify::VerdictStatus status) {
  switch (status) {
    case verify::VerdictStatus::kPass:
      return kExitDone;
    case verify::VerdictStatus::kFail:
    case verify::VerdictStatus::kCancelled:
      return kExitFailed;
    case verify::VerdictStatus::kRejected:
      return kExitRefused;
    case verify::VerdictStatus::kError:
      break;
  }
  return kExitInfrastructure;
}

inline int ExitCodeOf(const CommandOutcome& outcome) {
  switch (outcome.ending) {
    case Ending::kTimeout:
      return kExitRunTimeout;
    case Ending::kNotExecutable:
      return outcome.exec_errno == ENOENT || outcome.exec_errno == ENOTDIR ? kExitRunNotFound : kExitRunNotExecutable;
    case Ending::kCancelled:
      return 128 + SIGTERM;
    default:
      return outcome.exit_code;
  }
}

}  // namespace caisson::cli
