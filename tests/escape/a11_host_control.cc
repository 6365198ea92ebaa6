// Calls that change the host as a whole. No runtime probes them, so the filter kills.
//
// SAFETY: the controls may run as root on a machine that is in use. Each set of arguments is refused by the kernel
// before it does anything; where the obvious null argument would do something, the comment says what.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr long kBadAddress = 1;
constexpr long kCreateModule = 174, kNfsservctl = 180, kQuotactlFd = 443;

Attempt Killed(const char* name, std::function<long()> call) {
  return {.name = name,
          .probe = [name, call = std::move(call)] { return Survived(call(), name); },
          .control = {.reaches_kernel = true},
          .expect = {.death = Death::kRequired, .reports = {{"SyscallViolation", "syscall.kernel", name}}}};
}

// It hangs up the caller's terminal, so it is called from a session without one.
long HangUp() {
  const Ended ended = InChild([] {
    if (::setsid() < 0) return EBUSY;
    return static_cast<int>(-Call(SYS_vhangup));
  });
  return -ended.code;
}

// The buffer's size; refused to all but root where dmesg is restricted.
Observation KernelLog() { return FromCall(Call(SYS_syslog, 10, nullptr, 0), "asked the kernel's log"); }

const Registration kRow(Row{
    .id = "A11",
    .title = "modules, kexec, reboot, swap, accounting, port I/O, kernel log",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "capabilities"},
    .attempts = {Killed("init_module", [] { return Call(SYS_init_module, nullptr, 0, nullptr); }),
                 Killed("finit_module", [] { return Call(SYS_finit_module, -1, nullptr, 0); }),
                 Killed("delete_module", [] { return Call(SYS_delete_module, kBadAddress, 0); }),
                 Killed("create_module", [] { return Call(kCreateModule, nullptr, 0); }),
                 // Zero segments would unload what is loaded; these are too many, with flags there are none of.
                 Killed("kexec_load", [] { return Call(SYS_kexec_load, 0, 1 << 20, nullptr, 0xfff8); }),
                 Killed("kexec_file_load", [] { return Call(SYS_kexec_file_load, -1, -1, 0, nullptr, 0xfff0); }),
                 // Without the magic numbers.
                 Killed("reboot", [] { return Call(SYS_reboot, 0, 0, 0, nullptr); }),
                 Killed("swapon", [] { return Call(SYS_swapon, kBadAddress, 0x7ff00000); }),
                 Killed("swapoff", [] { return Call(SYS_swapoff, kBadAddress); }),
                 // A null name would switch accounting off.
                 Killed("acct", [] { return Call(SYS_acct, kBadAddress); }),
                 Killed("quotactl", [] { return Call(SYS_quotactl, 0xff, kBadAddress, 0, nullptr); }),
                 Killed("quotactl_fd", [] { return Call(kQuotactlFd, -1, 0xff, 0, nullptr); }),
                 Killed("iopl", [] { return Call(SYS_iopl, 4); }),
                 Killed("ioperm", [] { return Call(SYS_ioperm, 0, 0, 0); }),
                 Killed("nfsservctl", [] { return Call(kNfsservctl, 0, nullptr, nullptr); }),
                 Killed("uselib", [] { return Call(SYS_uselib, kBadAddress); }),
                 Killed("vhangup", HangUp),
                 {.name = "syslog",
                  .probe = KernelLog,
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.kernel", "syslog"}}}}},
});

}  // namespace

}  // namespace caisson::escape
