// A system call that uses registers only: no errno, no allocation, no thread-local storage. For the process that shares
// the supervisor's memory (sandbox/cleanup_process.cc) and must not change any of it.
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
