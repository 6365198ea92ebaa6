#include "linux/syscall_names.h"

#include <cstddef>
#include <span>

namespace caisson::linux_sys {

// Written by tools/seccomp_compile.cc.
extern const std::span<const char* const> kSyscallNames;

const char* SyscallName(int32_t number) {
  if (number < 0 || static_cast<size_t>(number) >= kSyscallNames.size()) return nullptr;
  return kSyscallNames[static_cast<size_t>(number)];
}

int32_t SyscallNumber(std::string_view name) {
  for (size_t number = 0; number < kSyscallNames.size(); ++number) {
    if (kSyscallNames[number] != nullptr && name == kSyscallNames[number]) return static_cast<int32_t>(number);
  }
  return -1;
}

}  // namespace caisson::linux_sys
