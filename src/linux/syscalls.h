// System calls glibc has no wrapper for. Each returns what the kernel does, with -1 and errno on failure, allocates
// nothing and is safe after clone.
#pragma once

#include <linux/openat2.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "linux/abi/landlock.h"

namespace caisson::linux_sys {

inline pid_t Clone3(struct clone_args* args) { return static_cast<pid_t>(::syscall(SYS_clone3, args, sizeof(*args))); }

inline int OpenAt2(int dir_fd, const char* path, const struct open_how& how) {
  return static_cast<int>(::syscall(SYS_openat2, dir_fd, path, &how, sizeof(how)));
}

// glibc 2.36 declares these two without C linkage, so C++ cannot link them.
inline int PidfdGetFd(int pidfd, int fd) { return static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, fd, 0)); }
inline int PidfdSendSignal(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

inline int PivotRoot(const char* new_root, const char* put_old) {
  return static_cast<int>(::syscall(SYS_pivot_root, new_root, put_old));
}

inline int Seccomp(unsigned operation, unsigned flags, void* arguments) {
  return static_cast<int>(::syscall(SYS_seccomp, operation, flags, arguments));
}

inline int LandlockCreateRuleset(const linux_abi::LandlockRulesetAttr* attr, size_t size, uint32_t flags) {
  return static_cast<int>(::syscall(SYS_landlock_create_ruleset, attr, size, flags));
}
inline int LandlockAddRule(int ruleset_fd, int rule_type, const void* attr, uint32_t flags) {
  return static_cast<int>(::syscall(SYS_landlock_add_rule, ruleset_fd, rule_type, attr, flags));
}
inline int LandlockRestrictSelf(int ruleset_fd, uint32_t flags) {
  return static_cast<int>(::syscall(SYS_landlock_restrict_self, ruleset_fd, flags));
}
// The ABI version of this kernel, or 0 when it has no Landlock.
inline int LandlockAbi() {
  const int abi = LandlockCreateRuleset(nullptr, 0, linux_abi::kLandlockCreateRulesetVersion);
  return abi < 0 ? 0 : abi;
}

}  // namespace caisson::linux_sys
