// The kernel looks at 32 bits of these arguments, a filter sees 64. A program passes a rule that compares all 64 by
// setting a bit that the kernel ignores (CVE-2019-7303, CVE-2019-10063).
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr long kHigh = 1L << 32;

constexpr long With(long value) { return kHigh | value; }

Observation Socket(long domain, long type, long protocol) {
  const long fd = Call(SYS_socket, With(domain), With(type), With(protocol));
  if (fd >= 0) ::close(static_cast<int>(fd));
  return FromCall(fd, "a socket");
}

Observation Netlink() { return Socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC); }
Observation Raw() { return Socket(AF_INET, SOCK_RAW, IPPROTO_TCP); }
Observation Packet() { return Socket(AF_PACKET, SOCK_RAW, 0); }

// On a file that is no terminal, so that the kernel's own answer is ENOTTY.
Observation Ioctl() { return FromHarmlessCall(Call(SYS_ioctl, 0, With(TIOCSTI), "x"), {ENOTTY}, "TIOCSTI"); }

// A fifth argument is refused before anything else is looked at.
Observation PrctlSetMm() {
  return FromHarmlessCall(Call(SYS_prctl, With(PR_SET_MM), PR_SET_MM_BRK, 0, 0, 1), {EINVAL}, "PR_SET_MM");
}

Observation Personality() {
  const long result = Call(SYS_personality, With(READ_IMPLIES_EXEC));
  const bool set = (Call(SYS_personality, 0xffffffff) & READ_IMPLIES_EXEC) != 0;
  return set ? Escaped("READ_IMPLIES_EXEC is set") : FromCall(result, "no effect");
}

Observation Futex() {
  alignas(4) unsigned word = 0;
  const long result = Call(SYS_futex, &word, With(13 | FUTEX_PRIVATE_FLAG), 0, nullptr, nullptr, 0);  // FUTEX_LOCK_PI2
  return word != 0 ? Escaped("a priority-inheriting lock") : FromCall(result, "FUTEX_LOCK_PI2");
}

Observation Clone() {
  const long child = Call(SYS_clone, With(CLONE_NEWUSER | SIGCHLD), nullptr, nullptr, nullptr, nullptr);
  if (child == 0) ::_exit(0);
  if (child > 0) ::waitpid(static_cast<pid_t>(child), nullptr, 0);
  return FromCall(child, "a user namespace");
}

// No name of a protocol is given, so none is loaded.
Observation Setsockopt() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return FromHarmlessCall(Call(SYS_setsockopt, fd, With(SOL_TCP), With(TCP_ULP), "", 0), {EINVAL}, "TCP_ULP");
}

Observation Prlimit() {
  struct rlimit limit {};
  return FromCall(Call(SYS_prlimit64, With(::getppid()), RLIMIT_NOFILE, nullptr, &limit), "another process's limits");
}

// Priority 0 is none of a real-time policy's.
Observation Scheduler() {
  struct sched_param parameters {};
  return FromHarmlessCall(Call(SYS_sched_setscheduler, 0, With(SCHED_FIFO), &parameters), {EINVAL}, "SCHED_FIFO");
}

Observation Listener() {
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program {
    1, &allow
  };
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return FromCall(Call(SYS_seccomp, With(SECCOMP_SET_MODE_FILTER), With(SECCOMP_FILTER_FLAG_NEW_LISTENER), &program),
                  "a listener of its own");
}

// The mount refuses it; the filter must still see the intent to write, or the attempt is not recorded.
Observation Open() {
  const std::string path = IsControl() ? WritableDirectory() + "/new" : "/usr/new";
  const long fd = Call(SYS_openat, AT_FDCWD, path.c_str(), With(O_WRONLY | O_CREAT), 0600);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return FromCall(fd, "made " + path);
}

ParkedSetup Denied(int error, const char* violation_class, const char* reason, const char* syscall) {
  return {.errnos = {error}, .reports = {{violation_class, reason, syscall}}};
}

const Registration kRow(Row{
    .id = "A03",
    .title = "arguments with a bit set above the 32 the kernel looks at",
    .severity = Severity::kEscape,
    .walls = {"seccomp: masked argument rules"},
    .attempts =
        {{.name = "netlink", .probe = Netlink, .expect = {.errnos = {EAFNOSUPPORT}}},
         {.name = "raw",
          .probe = Raw,
          .control = {.place = Place::kOwnNamespaces},
          .expect = Denied(EPERM, "NetworkAccessViolation", "net.raw", "socket")},
         {.name = "packet",
          .probe = Packet,
          .control = {.place = Place::kOwnNamespaces},
          .expect = Denied(EAFNOSUPPORT, "NetworkAccessViolation", "net.family", "socket")},
         {.name = "ioctl",
          .probe = Ioctl,
          .control = {.reaches_kernel = true},
          .expect = Denied(EPERM, "SyscallViolation", "syscall.tty", "ioctl")},
         {.name = "prctl",
          .probe = PrctlSetMm,
          .control = {.reaches_kernel = true},
          .expect = Denied(EPERM, "SyscallViolation", "syscall.kernel", "prctl")},
         {.name = "personality", .probe = Personality, .expect = {.errnos = {EPERM}}},
         {.name = "futex", .probe = Futex, .expect = {.errnos = {ENOSYS}}},
         {.name = "clone", .probe = Clone, .expect = Denied(EPERM, "SyscallViolation", "syscall.ns", "clone")},
         {.name = "setsockopt",
          .probe = Setsockopt,
          .control = {.reaches_kernel = true},
          .expect = Denied(EPERM, "NetworkAccessViolation", "net.option", "setsockopt")},
         {.name = "prlimit", .probe = Prlimit, .expect = {.errnos = {EPERM}}},
         {.name = "scheduler", .probe = Scheduler, .control = {.reaches_kernel = true}, .expect = {.errnos = {EPERM}}},
         {.name = "seccomp",
          .probe = Listener,
          .expect = Denied(EPERM, "SyscallViolation", "syscall.kernel", "seccomp")},
         {.name = "open",
          .probe = Open,
          .expect = {.errnos = {EROFS, EACCES}, .reports = {{"FilesystemWriteViolation", "fs.write", "openat"}}}}},
});

}  // namespace

}  // namespace caisson::escape
