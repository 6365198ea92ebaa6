#include "verify/verdict.h"

#include <algorithm>

namespace caisson::verify {

namespace {

const char* TerminalEvent(ViolationClass violation_class) {
  switch (violation_class) {
    case ViolationClass::kTimeout:
      return "timeout";
    case ViolationClass::kMemoryLimit:
      return "memory_limit";
    case ViolationClass::kProcessLimit:
      return "process_limit";
    case ViolationClass::kOutputLimit:
      return "output_limit";
    case ViolationClass::kNetworkAccess:
      return "network_denied";
    case ViolationClass::kFilesystemWrite:
      return "write_denied";
    case ViolationClass::kSyscall:
      return "syscall_denied";
  }
  return "error";
}

Verdict Failed(ViolationClass violation_class) {
  return {VerdictStatus::kFail, ClassName(violation_class), TerminalEvent(violation_class)};
}

}  // namespace

Verdict Judge(const CommandOutcome& outcome, policy::OnViolation on_violation) {
  // The cause of the ending determines the class.
  switch (outcome.ending) {
    case Ending::kTimeout:
      return Failed(ViolationClass::kTimeout);
    case Ending::kMemoryLimit:
      return Failed(ViolationClass::kMemoryLimit);
    case Ending::kProcessLimit:
      return Failed(ViolationClass::kProcessLimit);
    case Ending::kOutputLimit:
      return Failed(ViolationClass::kOutputLimit);
    case Ending::kSyscall:
      return Failed(ViolationClass::kSyscall);
    case Ending::kCancelled:
      return {VerdictStatus::kCancelled, "", "cancelled"};
    case Ending::kLost:
      return {VerdictStatus::kError, "InfrastructureError", "error"};
    case Ending::kExited:
    case Ending::kSignaled:
    case Ending::kNotExecutable:
      break;
  }
  // Otherwise, where violations fail a check, the first violation in time decides, even when the program ignored the
  // error. Where violations are only reported, none of them ended this check: the program failed by itself or passed.
  if (!outcome.violations.empty() && on_violation == policy::OnViolation::kFail) {
    const auto first = std::min_element(outcome.violations.begin(), outcome.violations.end(),
                                        [](const Violation& a, const Violation& b) { return a.time_ms < b.time_ms; });
    return Failed(first->violation_class);
  }
  const bool failed = outcome.ending != Ending::kExited || outcome.exit_code != 0;
  if (failed) return {VerdictStatus::kFail, "CheckFailed", "check_failed"};
  return {};
}

}  // namespace caisson::verify
