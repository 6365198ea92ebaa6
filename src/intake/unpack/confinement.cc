#include "intake/unpack/confinement.h"

#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>

#include "linux/syscalls.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAISSON_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAISSON_SANITIZED 1
#endif
#endif
#ifndef CAISSON_SANITIZED
#define CAISSON_SANITIZED 0
#endif

namespace caisson::intake::unpack {
namespace {

constexpr uid_t kNobody = 65534;

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name this architecture's AUDIT_ARCH constant"
#endif

Status Limit(int resource, uint64_t soft, uint64_t hard, const char* name) {
  const struct rlimit limit = {soft, hard};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0)
    return Error::System(errno, std::string("limit ") + name);
  return {};
}

Status LimitResources(uint64_t memory_bytes, uint64_t cpu_seconds) {
  // The sanitizers reserve terabytes of addresses; such a build is for tests.
  if (!CAISSON_SANITIZED) CAISSON_TRY_VOID(Limit(RLIMIT_AS, memory_bytes, memory_bytes, "memory"));
  // At the hard limit the kernel would send SIGKILL, which hides the reason.
  CAISSON_TRY_VOID(Limit(RLIMIT_CPU, cpu_seconds, cpu_seconds + 1, "CPU time"));
  CAISSON_TRY_VOID(Limit(RLIMIT_NOFILE, 0, 0, "descriptors"));
  CAISSON_TRY_VOID(Limit(RLIMIT_NPROC, 0, 0, "processes"));
  CAISSON_TRY_VOID(Limit(RLIMIT_FSIZE, 0, 0, "file size"));
  return Limit(RLIMIT_CORE, 1, 1, "core size");  // 0 would still feed a core handler behind a pipe
}

Status DropPrivileges() {
  if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
                           ::setresuid(kNobody, kNobody, kNobody) != 0)) {
    return Error::System(errno, "become nobody");
  }
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capset, &header, none) != 0) return Error::System(errno, "drop capabilities");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::System(errno, "set no_new_privs");
  // End with the reader. Set here and not earlier, because changing the user resets it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return Error::System(errno, "die with the parent");
  return {};
}

// Allows one call.
#define CAISSON_ALLOW(name) \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
// Allows one call unless it asks for executable memory; the protection is its third argument.
#define CAISSON_ALLOW_UNLESS_EXECUTABLE(name)                                                                     \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 4),                                                          \
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 2 * sizeof(uint64_t)),             \
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

Status LimitSystemCalls(bool reads) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      CAISSON_ALLOW(write),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(reads ? SYS_read : SYS_write), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      CAISSON_ALLOW(brk),
      CAISSON_ALLOW(munmap),
      CAISSON_ALLOW(mremap),
      CAISSON_ALLOW(madvise),
      CAISSON_ALLOW(futex),
      CAISSON_ALLOW(clock_gettime),  // for machines without a vDSO clock
      CAISSON_ALLOW(exit_group),
      CAISSON_ALLOW_UNLESS_EXECUTABLE(mmap),
      CAISSON_ALLOW_UNLESS_EXECUTABLE(mprotect),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  if (linux_sys::Seccomp(SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
    return Error::System(errno, "set the system-call filter");
  return {};
}

}  // namespace

Status Confine(uint64_t memory_bytes, uint64_t cpu_seconds, bool reads) {
  CAISSON_TRY_VOID(LimitResources(memory_bytes, cpu_seconds));
  CAISSON_TRY_VOID(DropPrivileges());
  return LimitSystemCalls(reads);
}

}  // namespace caisson::intake::unpack
