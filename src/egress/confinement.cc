#include "egress/confinement.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "base/mutation.h"
#include "base/unique_fd.h"
#include "linux/abi/landlock.h"
#include "linux/syscalls.h"

namespace caisson::egress {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name this architecture's AUDIT_ARCH constant"
#endif

Status Limit(__rlimit_resource resource, uint64_t wanted, const char* name) {
  struct rlimit current {};
  if (::getrlimit(resource, &current) != 0) return Error::System(errno, std::string("read the limit of ") + name);
  const rlim_t value = std::min<rlim_t>(wanted, current.rlim_max);
  const struct rlimit limit = {value, value};
  if (::setrlimit(resource, &limit) != 0) return Error::System(errno, std::string("limit ") + name);
  return {};
}

Status DropUser(const Confinement& confinement) {
  if (CAISSON_LEFT_OUT("egress_user")) {
    // stays the supervisor's user
  } else if (::geteuid() == 0) {
    if (confinement.uid == 0 || confinement.gid == 0) return Error::Invalid("egress does not run as root");
    if (::setgroups(0, nullptr) != 0 || ::setresgid(confinement.gid, confinement.gid, confinement.gid) != 0 ||
        ::setresuid(confinement.uid, confinement.uid, confinement.uid) != 0)
      return Error::System(errno, "become the egress user");
  } else if (::unshare(CLONE_NEWUSER) != 0) {
    return Error::System(errno, "make a user namespace");
  }
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capset, &header, none) != 0) return Error::System(errno, "drop capabilities");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::System(errno, "set no_new_privs");
  // Prevents other processes of this user from tracing this process or reading its memory.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return Error::System(errno, "become undumpable");
  return {};
}

Result<int> DropFiles() {
  const int abi = linux_sys::LandlockAbi();
  if (abi == 0) return 0;
  linux_abi::LandlockRulesetAttr attr{linux_abi::LandlockAllFsRights(abi), 0, 0};
  size_t size = sizeof(attr.handled_access_fs);
  if (abi >= 6) {
    attr.scoped = linux_abi::kLandlockScopeAbstractUnixSocket | linux_abi::kLandlockScopeSignal;
    size = sizeof(attr);
  }
  const UniqueFd ruleset(linux_sys::LandlockCreateRuleset(&attr, size, 0));
  if (!ruleset || linux_sys::LandlockRestrictSelf(ruleset.get(), 0) != 0)
    return Error::System(errno, "shut out all files");
  return abi;
}

constexpr uint32_t kArgument0 = offsetof(struct seccomp_data, args);
constexpr uint32_t kArgument1 = kArgument0 + sizeof(uint64_t);
constexpr uint32_t kArgument2 = kArgument0 + 2 * sizeof(uint64_t);

// A list of allowed system calls; every other call kills the process.
class Filter {
 public:
  Filter() {
    Add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    Add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  }

  void Allow(std::initializer_list<long> calls) {
    for (const long call : calls) {
      Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
      Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
  }

  void AllowUnlessExecutable(long call) {
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 4));
    Add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArgument2));
    Add(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1));
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }

  // Allows fcntl to set the flags of an open descriptor, which makes a received listener non-blocking.
  void AllowSetFlags() {
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 4));
    Add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArgument1));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETFL, 1, 0));
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }

  // Allows Internet sockets of one type: no unix sockets of the host, no netlink, no raw sockets. A kernel without IPv6
  // refuses IPv6 sockets by itself.
  void AllowSockets(int type) {
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 8));
    Add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArgument0));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0));
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 3));
    Add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArgument1));
    Add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf));  // without SOCK_CLOEXEC and SOCK_NONBLOCK
    Add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(type), 1, 0));
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }

  Status Install() {
    Add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    struct sock_fprog program = {static_cast<unsigned short>(code_.size()), code_.data()};
    if (linux_sys::Seccomp(SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
      return Error::System(errno, "set the system-call filter");
    return {};
  }

 private:
  void Add(struct sock_filter instruction) { code_.push_back(instruction); }
  std::vector<struct sock_filter> code_;
};

Status LimitSystemCalls(Role role, bool terminates_tls) {
  Filter filter;
  filter.Allow({SYS_recvmsg, SYS_sendmsg, SYS_recvfrom, SYS_sendto, SYS_connect, SYS_close, SYS_brk, SYS_munmap,
                SYS_mremap, SYS_madvise, SYS_futex, SYS_getrandom, SYS_exit_group, SYS_restart_syscall,
                SYS_clock_gettime});  // clock_gettime: for machines where the vDSO cannot read the clock
  filter.AllowUnlessExecutable(SYS_mmap);
  filter.AllowUnlessExecutable(SYS_mprotect);
  if (terminates_tls) filter.Allow({SYS_getpid});
  if (role == Role::kRelay) {
    filter.AllowSockets(SOCK_STREAM);
    filter.AllowSetFlags();
    filter.Allow({SYS_epoll_ctl, SYS_epoll_pwait, SYS_accept4, SYS_shutdown, SYS_getsockopt, SYS_setsockopt});
#ifdef SYS_epoll_wait
    filter.Allow({SYS_epoll_wait});
#endif
  } else {
    filter.AllowSockets(SOCK_DGRAM);
    filter.Allow({SYS_ppoll});
#ifdef SYS_poll
    filter.Allow({SYS_poll});
#endif
  }
  return filter.Install();
}

}  // namespace

Result<int> Confine(const Confinement& confinement) {
  CAISSON_TRY_VOID(Limit(RLIMIT_AS, confinement.memory_bytes, "memory"));
  struct rlimit files {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max < confinement.descriptors) {
    return Error::Unsupported("egress needs " + std::to_string(confinement.descriptors) +
                              " open files, and the hard limit (ulimit -Hn) is " + std::to_string(files.rlim_max));
  }
  CAISSON_TRY_VOID(Limit(RLIMIT_NOFILE, confinement.descriptors, "descriptors"));
  CAISSON_TRY_VOID(Limit(RLIMIT_FSIZE, 0, "file size"));
  CAISSON_TRY_VOID(Limit(RLIMIT_CORE, 1, "core size"));  // 0 would still feed a core handler behind a pipe
  CAISSON_TRY_VOID(DropUser(confinement));
  CAISSON_TRY_VOID(Limit(RLIMIT_NPROC, 0, "processes"));
  CAISSON_TRY(const int abi, DropFiles());
  CAISSON_TRY_VOID(LimitSystemCalls(confinement.role, confinement.terminates_tls));
  return abi;
}

}  // namespace caisson::egress
