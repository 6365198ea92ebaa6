// The steps that drop privileges. Runs: child after clone.
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "linux/abi/seccomp.h"
#include "linux/shown_arguments.h"
#include "linux/syscalls.h"
#include "sandbox/control.h"
#include "sandbox/mutation.h"
#include "sandbox/setup.h"

namespace caisson::sandbox {

int RaiseLoopbackHere(DnsSockets& sockets) {
  sockets.datagrams = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (sockets.datagrams < 0) return errno;
  struct ifreq request {};
  ::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  address.sin_addr.s_addr = htonl(0x7f000035);  // 127.0.0.53, as /etc/resolv.conf says
  if (::ioctl(sockets.datagrams, SIOCSIFFLAGS, &request) != 0) return errno;
  const auto bind = [&address](int fd) {
    return ::bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) == 0;
  };
  if (!bind(sockets.datagrams)) return errno;
  if (CAISSON_LEFT_OUT("look_ups_over_tcp")) return 0;
  // Resolvers also ask over TCP: when configured to, and when an answer was truncated.
  sockets.listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (sockets.listener < 0 || !bind(sockets.listener) || ::listen(sockets.listener, 8) != 0) return errno;
  return 0;
}

// The kernel charges resources of this namespace also to the user who created it, that is, to the host's root or the
// caller: without a lower limit here one sandbox could exhaust that user's allowance for every other program. A sandbox
// gets so few that many sandboxes together leave enough for the host.
int CapUserCounters(int proc) {
  if (CAISSON_LEFT_OUT("user_counters")) return 0;
  struct Counter {
    const char* path;
    const char* most;
  };
  const Counter counters[] = {
      {"sys/user/max_inotify_instances", "8"},   // of 128 that a user has on most hosts
      {"sys/user/max_inotify_watches", "1024"},  // of at least 8192
      // A second wall behind the filter, which refuses to create namespaces: all other kinds need a user namespace
      // first.
      {"sys/user/max_user_namespaces", "0"},
  };
  for (const Counter& counter : counters) {
    const int fd = ::openat(proc, counter.path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) continue;  // a kernel without this counter
    if (fd < 0) return errno;
    const auto size = static_cast<ssize_t>(::strlen(counter.most));
    const int error = ::write(fd, counter.most, static_cast<size_t>(size)) == size ? 0 : errno;
    ::close(fd);
    if (error != 0) return error;
  }
  return 0;
}

int OpenSegmentList(int proc, SetupContext& context) {
  // When the namespace is shared with the host, the list shows the segments of all users.
  if (!context.limit_processes_by_rlimit || context.spec->share_ipc) return 0;
  context.segments_fd = ::openat(proc, "sysvipc/shm", O_RDONLY | O_CLOEXEC);
  return context.segments_fd >= 0 || errno == ENOENT ? 0 : errno;  // a kernel without such memory
}

}  // namespace caisson::sandbox

namespace caisson::sandbox::steps {

namespace {

int AllowBeneath(int ruleset, const char* path, uint64_t rights) {
  // SECURITY: a directory of the host may lie on the path, and a link can appear in it at any time.
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const int fd = linux_sys::OpenAt2(AT_FDCWD, path, how);
  if (fd < 0) return errno;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno;
  constexpr uint64_t kFileRights = linux_abi::kLandlockFsExecute | linux_abi::kLandlockFsWriteFile |
                                   linux_abi::kLandlockFsReadFile | linux_abi::kLandlockFsTruncate |
                                   linux_abi::kLandlockFsIoctlDev;
  linux_abi::LandlockPathBeneathAttr rule{S_ISDIR(info.st_mode) ? rights : rights & kFileRights, fd};
  const int result = linux_sys::LandlockAddRule(ruleset, linux_abi::kLandlockRulePathBeneath, &rule, 0);
  const int error = result == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

int Limit(__rlimit_resource_t resource, rlim_t soft, rlim_t hard) {
  // Never raises a limit: the caller's own limits may be lower, and raising a hard limit needs a privilege of the host.
  struct rlimit current {};
  if (::getrlimit(resource, &current) != 0) return errno;
  const struct rlimit wanted {
    soft < current.rlim_max ? soft : current.rlim_max, hard < current.rlim_max ? hard : current.rlim_max
  };
  return ::setrlimit(resource, &wanted) == 0 ? 0 : errno;
}

// Soft and hard limit are equal: if a program could raise its limit, the verdict would depend on the host's limit.
int LimitStack(SetupContext& context) {
  const rlim_t bytes = static_cast<rlim_t>(context.spec->limits.stack_bytes);
  struct rlimit current {};
  if (::getrlimit(RLIMIT_STACK, &current) != 0) return errno;
  context.stack_fits_interpreter = current.rlim_cur == bytes;
  // Grows PID 1's own stack by what it still needs before the limit applies to it too: the limit may be below the
  // current use.
  volatile char room[64 << 10];
  for (size_t i = 0; i < sizeof(room); i += 4096) room[i] = 0;
  return Limit(RLIMIT_STACK, bytes, bytes);
}

}  // namespace

int CloseForeignDescriptors(SetupContext& context) {
  if (CAISSON_LEFT_OUT("descriptors")) return 0;
  unsigned next = 3;
  for (const int kept : context.kept_fds) {
    const unsigned fd = static_cast<unsigned>(kept);
    if (fd > next && ::close_range(next, fd - 1, 0) != 0) return errno;
    next = fd + 1;
  }
  return ::close_range(next, ~0U, 0) == 0 ? 0 : errno;
}

// PID 1 is a fork of the supervisor and shows the supervisor's command line in /proc/1/cmdline, which the kernel shows
// to every process, dumpable or not. The line lies in our memory, so our copy can be overwritten.
int ForgetArguments(SetupContext&) {
  const std::span<char> arguments = linux_sys::ShownArguments();
  if (arguments.empty()) return errno;
  ::memset(arguments.data(), 0, arguments.size());
  constexpr char kName[] = "caisson-init";
  if (arguments.size() >= sizeof(kName)) ::memcpy(arguments.data(), kName, sizeof(kName));
  return 0;
}

int AwaitIdMaps(SetupContext& context) {
  Order order{};
  const ssize_t size = ::read(context.control_fd, &order, sizeof(order));
  if (size < 0) return errno;
  // An empty read means that the supervisor died.
  if (size != sizeof(order) || order.kind != Order::kIdMapsWritten) return ECONNABORTED;
  return 0;
}

int BecomeInsideUser(SetupContext& context) {
  // An ordinary user cannot drop groups through a one-line map; inside, these groups appear as the overflow group and
  // give no access beyond that of "other", because every shown host path is world-readable or the user's own.
  if (context.may_drop_groups && ::setgroups(0, nullptr) != 0) return errno;
#ifdef CAISSON_MUTATIONS
  const gid_t kept = 4;  // of a caller with supplementary groups
  if (CAISSON_LEFT_OUT("groups") && ::setgroups(1, &kept) != 0) return errno;
  if (CAISSON_LEFT_OUT("inside_user")) return ::setresgid(0, 0, 0) == 0 && ::setresuid(0, 0, 0) == 0 ? 0 : errno;
  // Without a user namespace the mounts below need the host's capabilities.
  if (CAISSON_LEFT_OUT("user_namespace")) ::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
#endif
  if (::setresgid(kInsideGid, kInsideGid, kInsideGid) != 0) return errno;
  if (::setresuid(kInsideUid, kInsideUid, kInsideUid) != 0) return errno;
  ::umask(022);
  return 0;
}

int JoinCgroups(SetupContext& context) {
  Order order{};
  int fds[kMaxHandoverFds];
  const int count = TakeWithDescriptors(context.control_fd, &order, sizeof(order), fds);
  if (count < 0) return errno;
  if (order.kind != Order::kJoinCgroups) return ECONNABORTED;
  for (int i = 0; i < count; ++i) {  // none: v2, where we were cloned into the group, or no group to join
    // "0" to a v1 tasks file moves only the writing thread. Only this form of migration avoids the kernel's global
    // thread-group lock, whose first use after a pause costs about nine milliseconds.
    if (::write(fds[i], "0", 1) != 1) return errno;
    ::close(fds[i]);
  }
  return 0;
}

int HideCgroupPath(SetupContext& context) {
  if (context.spec->share_cgroup || CAISSON_LEFT_OUT("cgroup_namespace")) return 0;
  return ::unshare(CLONE_NEWCGROUP) == 0 ? 0 : errno;
}

int RaiseLoopback(SetupContext& context) {
  // On a kernel without such sockets, the memory of sockets is not counted, and the record says so.
  if (context.limit_processes_by_rlimit && !CAISSON_LEFT_OUT("network_namespace"))
    context.diagnosis_fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (context.network_made_ahead || CAISSON_LEFT_OUT("network_namespace")) return 0;
  return RaiseLoopbackHere(context.dns);
}

int NameHost(SetupContext& context) {
  if (context.spec->share_uts || CAISSON_LEFT_OUT("uts_namespace")) return 0;
  const std::string& name = context.spec->hostname;
  if (::sethostname(name.c_str(), name.size()) != 0) return errno;
  return ::setdomainname("", 0) == 0 ? 0 : errno;
}

int SetResourceLimits(SetupContext& context) {
  if (CAISSON_LEFT_OUT("resource_limits")) return 0;
  const Limits& limits = context.spec->limits;
  struct Cap {
    __rlimit_resource_t resource;
    rlim_t soft, hard;
  };
  const rlim_t file_size = static_cast<rlim_t>(limits.scratch_bytes);
  const Cap caps[] = {
      // 1 and not 0: with 0 a core_pattern that pipes to a program still runs that program, as host root.
      {RLIMIT_CORE, 1, 1},
      {RLIMIT_NOFILE, 1024, 4096},
      {RLIMIT_FSIZE, file_size, file_size},
      {RLIMIT_MEMLOCK, rlim_t{1} << 20, rlim_t{1} << 20},
      {RLIMIT_MSGQUEUE, 819200, 819200},
      {RLIMIT_SIGPENDING, 4096, 4096},
      {RLIMIT_NICE, 0, 0},
      {RLIMIT_RTPRIO, 0, 0},
  };
  for (const Cap& cap : caps) {
    const int error = Limit(cap.resource, cap.soft, cap.hard);
    if (error == EPERM && context.kernel_lacks_limits) continue;  // what it would limit is not there either
    if (error != 0) return error;
  }
  if (const int error = LimitStack(context); error != 0) return error;
  // Lets nproc and thread pools see the CPUs they will get. This limits nothing by itself: the quota does.
  if (context.restrict_cpus && ::sched_setaffinity(0, sizeof(context.cpus), &context.cpus) != 0) return errno;
  if (context.limit_processes_by_rlimit) {
    // The kernel counts per user *and* user namespace since Linux 5.14, so the user's other processes do not count. One
    // more for PID 1, which is the same user.
    const rlim_t processes = static_cast<rlim_t>(limits.processes + kSpareTasks) + 1;
    return Limit(RLIMIT_NPROC, processes, processes);
  }
  return 0;
}

int ForbidNewPrivileges(SetupContext&) {
  if (CAISSON_LEFT_OUT("no_new_privs")) return 0;
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno;
}

namespace {

uint64_t WriteRights(int abi) {
  return linux_abi::LandlockAllFsRights(abi) &
         ~(linux_abi::kLandlockFsMakeChar | linux_abi::kLandlockFsMakeBlock | linux_abi::kLandlockFsIoctlDev);
}

}  // namespace

int ListPaths(SetupContext& context) {
  const int abi = context.landlock_abi;
  if (CAISSON_LEFT_OUT("landlock")) return 0;
  if (abi == 0) return 0;  // the supervisor has already refused, or the profile accepts it and the record says so
  const uint64_t all = linux_abi::LandlockAllFsRights(abi);
  linux_abi::LandlockRulesetAttr attr{all, 0, 0};
  size_t size = sizeof(attr.handled_access_fs);
  if (abi >= 6) {
    attr.scoped = linux_abi::kLandlockScopeAbstractUnixSocket | linux_abi::kLandlockScopeSignal;
    size = sizeof(attr);
  }
  context.ruleset_fd = linux_sys::LandlockCreateRuleset(&attr, size, 0);
  if (context.ruleset_fd < 0) return errno;

  const uint64_t read = linux_abi::kLandlockFsExecute | linux_abi::kLandlockFsReadFile | linux_abi::kLandlockFsReadDir;
  const uint64_t device =
      all & (read | linux_abi::kLandlockFsWriteFile | linux_abi::kLandlockFsTruncate | linux_abi::kLandlockFsIoctlDev);
  const uint64_t write = WriteRights(abi);
  int error = AllowBeneath(context.ruleset_fd, "/", read);
  if (error == 0) error = AllowBeneath(context.ruleset_fd, "/dev", device);
  if (error == 0) error = AllowBeneath(context.ruleset_fd, "/scratch", write);
  if (error == 0 && context.spec->writable_tmp) error = AllowBeneath(context.ruleset_fd, "/tmp", write);
  if (error == 0 && context.spec->writable_shm) error = AllowBeneath(context.ruleset_fd, "/dev/shm", write);
  return error;
}

int RestrictPaths(SetupContext& context) {
  if (context.ruleset_fd < 0) return 0;
  int error = 0;
  if (context.landlock_abi != 0) {  // otherwise the request runs without Landlock
    const Spec& spec = *context.spec;
    const uint64_t write = WriteRights(context.landlock_abi);
    if (spec.workspace ? spec.workspace->access != Access::kReadOnly : spec.workspace_files_writable) {
      error = AllowBeneath(context.ruleset_fd, "/workspace", write);
    }
    for (const Mount& mount : spec.mounts) {
      if (error == 0 && mount.access != Access::kReadOnly)
        error = AllowBeneath(context.ruleset_fd, mount.target.c_str(), write);
    }
    if (error == 0 && linux_sys::LandlockRestrictSelf(context.ruleset_fd, 0) != 0) error = errno;
  }
  ::close(context.ruleset_fd);
  context.ruleset_fd = -1;
  return error;
}

int LimitCapabilities(SetupContext&) {
  if (CAISSON_LEFT_OUT("capabilities")) return 0;
  // EINVAL marks the end of the bounding set.
  for (int capability = 0; ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; ++capability) {
  }
  if (errno != EINVAL) return errno;
  constexpr unsigned long kLocked = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                    SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                    SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  if (::prctl(PR_SET_SECUREBITS, kLocked, 0, 0, 0) != 0) return errno;
  return ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 ? 0 : errno;
}

int DropCapabilities(SetupContext&) {
  if (CAISSON_LEFT_OUT("capabilities")) return 0;
  struct __user_cap_header_struct header {
    _LINUX_CAPABILITY_VERSION_3, 0
  };
  struct __user_cap_data_struct none[2] = {};
  // Without no_new_privs, installing the filter needs a capability; it is dropped afterwards.
  if (CAISSON_LEFT_OUT("no_new_privs")) none[0].effective = none[0].permitted = 1U << CAP_SYS_ADMIN;
  return ::syscall(SYS_capset, &header, none) == 0 ? 0 : errno;
}

int DieWithSupervisor(SetupContext& context) {
  // A session of its own: the workload cannot reach the supervisor's controlling terminal through it.
  if (::setsid() < 0) return errno;
  // Set after the changes of user above, which would have cleared it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return errno;
  // The supervisor may have died before that call; then its end of the socket is closed.
  struct pollfd control {
    context.control_fd, POLLIN, 0
  };
  if (::poll(&control, 1, 0) < 0) return errno;
  return (control.revents & (POLLHUP | POLLERR)) != 0 ? ECONNABORTED : 0;
}

int InstallFilter(SetupContext& context) {
  const auto filter = context.spec->seccomp->filter;
  struct sock_fprog program {
    static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())
  };
#ifdef CAISSON_MUTATIONS
  sock_filter everything = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  if (CAISSON_LEFT_OUT("seccomp")) program = {1, &everything};
#endif
  // With WAIT_KILLABLE_RECV (Linux 5.19) a signal cannot interrupt a call under observation, so it is seen only once.
  context.listener_fd = linux_sys::Seccomp(
      SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program);
  if (context.listener_fd < 0 && errno == EINVAL) {
    context.listener_fd = linux_sys::Seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  }
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("no_new_privs") && context.listener_fd >= 0) {
    struct __user_cap_header_struct header {
      _LINUX_CAPABILITY_VERSION_3, 0
    };
    struct __user_cap_data_struct none[2] = {};
    return ::syscall(SYS_capset, &header, none) == 0 ? 0 : errno;
  }
#endif
  return context.listener_fd < 0 ? errno : 0;
}

}  // namespace caisson::sandbox::steps
