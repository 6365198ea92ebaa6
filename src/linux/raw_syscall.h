// A system call that touches nothing but registers: no errno, no allocation, no thread-local storage. For the one
// process that shares our memory (sandbox/keeper.cc) and may disturb none of it.
#pragma once

namespace caisson::linux_sys {

// Returns what the kernel returns: a negative errno on failure.
[[gnu::always_inline]] inline long RawSyscall(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
#else
#error "RawSyscall is written for x86_64"
#endif
}

}  // namespace caisson::linux_sys
