// The names of the native system calls, in a table made when the project is built.
#pragma once

#include <cstdint>
#include <string_view>

namespace caisson::linux_sys {

// One more than the greatest number that may have a name.
inline constexpr int32_t kSyscallNumberEnd = 512;

// nullptr when the number is unknown.
const char* SyscallName(int32_t number);

// -1 when the name is unknown.
int32_t SyscallNumber(std::string_view name);

}  // namespace caisson::linux_sys
