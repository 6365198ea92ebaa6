#include "base/violation.h"

namespace caisson {

const char* ClassName(ViolationClass violation_class) {
  switch (violation_class) {
    case ViolationClass::kTimeout:
      return "TimeoutViolation";
    case ViolationClass::kMemoryLimit:
      return "MemoryLimitViolation";
    case ViolationClass::kProcessLimit:
      return "ProcessLimitViolation";
    case ViolationClass::kOutputLimit:
      return "OutputLimitViolation";
    case ViolationClass::kNetworkAccess:
      return "NetworkAccessViolation";
    case ViolationClass::kFilesystemWrite:
      return "FilesystemWriteViolation";
    case ViolationClass::kSyscall:
      return "SyscallViolation";
  }
  return "UnknownViolation";
}

}  // namespace caisson
