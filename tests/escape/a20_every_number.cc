// Every call number: calls that are not allowed by name must not exist, and no call, however wrong its arguments, may
// disturb supervisor or host.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kLastNumber = 600;

// Allowed or answered by name above the highest number that a kernel of 2022 knew; the rest must be hidden.
constexpr int kNamedNew[] = {450, 452, 467};
constexpr int kFirstNew = 450;

// Numbers below that which no rule names: old, replaced or too dangerous to be there.
constexpr int kHidden[] = {SYS_getdents,
                           SYS_capset,
                           SYS_ustat,
                           SYS_sysfs,
                           SYS_time,
                           SYS_io_setup,
                           SYS_io_destroy,
                           SYS_io_getevents,
                           SYS_io_submit,
                           SYS_io_cancel,
                           SYS_remap_file_pages,
                           SYS_ioprio_set,
                           SYS_ioprio_get,
                           SYS_splice,
                           SYS_tee,
                           SYS_vmsplice,
                           SYS_fanotify_mark,
                           SYS_io_pgetevents,
                           SYS_io_uring_setup,
                           SYS_io_uring_enter,
                           SYS_io_uring_register,
                           SYS_clone3,
                           SYS_landlock_create_ruleset,
                           SYS_landlock_add_rule,
                           SYS_landlock_restrict_self,
                           SYS_memfd_secret,
                           SYS_process_mrelease,
                           SYS_futex_waitv};

// Killed by the policy; A02, A10, A11, A12 and A19 test these one by one.
constexpr int kDeadly[] = {SYS_pivot_root,
                           SYS_acct,
                           SYS_swapon,
                           SYS_swapoff,
                           SYS_reboot,
                           SYS_iopl,
                           SYS_ioperm,
                           SYS_vhangup,
                           174,
                           SYS_init_module,
                           SYS_delete_module,
                           SYS_quotactl,
                           180,
                           SYS_uselib,
                           SYS_lookup_dcookie,
                           SYS_kexec_load,
                           SYS_setns,
                           SYS_finit_module,
                           SYS_kexec_file_load,
                           SYS_bpf,
                           SYS_open_by_handle_at,
                           443};

template <size_t kSize>
bool Contains(const int (&numbers)[kSize], int number) {
  return std::find(std::begin(numbers), std::end(numbers), number) != std::end(numbers);
}

// With meaningless arguments: the question is which kernel code answers, not what it does.
Observation HiddenNumbers() {
  Tally tally;
  const auto look = [&](int number) {
    const long result = Call(number, 0, 0, 0, 0, 0, 0);
    tally.Add(std::to_string(number), result == -ENOSYS ? Blocked(ENOSYS) : Escaped(""));
  };
  for (const int number : kHidden) look(number);
  for (int number = kFirstNew; number <= kLastNumber; ++number) {
    if (!Contains(kNamedNew, number)) look(number);
  }
  return tally.SumAny();
}

// Each in a child that a timer ends: some wait for ever, some end the caller.
Observation Garbage() {
  int called = 0;
  for (int number = 0; number <= kLastNumber; ++number) {
    if (Contains(kDeadly, number)) continue;
    for (const long argument : {0L, -1L, 0x4141414141414141L}) {
      // Signals to all processes would end the probe itself.
      const bool signals = number == SYS_kill || number == SYS_tkill || number == SYS_tgkill;
      if (signals && argument != 0) continue;
      const pid_t child = ::fork();
      if (child < 0) continue;
      if (child == 0) {
        const struct itimerval soon = {{0, 0}, {0, 20'000}};
        ::setitimer(ITIMER_REAL, &soon, nullptr);
        Call(number, argument, argument, argument, argument, argument, argument);
        ::_exit(0);
      }
      ::waitpid(child, nullptr, __WALL);
      ++called;
    }
  }
  return Blocked(0, std::to_string(called) + " calls");
}

Judgement JudgeGarbage(Host& host) {
  const Outcome run = host.Run({.command = host.ProbeCommand("A20/garbage"), .flags = {"--timeout", "170s"}});
  if (!run.result || run.process.timed_out) return Broken("Caisson wrote no result");
  const auto saw = run.Saw("A20/garbage");
  if (!saw || std::atoi(saw->detail.c_str()) < 1500)
    return Broken("the sweep did not come to its end: " + run.result->failure_class + " " + run.process.err);
  // A report must exist: some of the numbers are always reported.
  if (run.result->Find("SyscallViolation", "syscall.ptrace") == nullptr) return Broken("ptrace was not reported");
  return Held(saw->detail + ", host unmoved");
}

const Registration kRow(Row{
    .id = "A20",
    .title = "every call number to 600, with nothing and with garbage",
    .severity = Severity::kHostDenial,
    .walls = {"seccomp: default is ENOSYS"},
    // As an ordinary user: in the control these reach the host's kernel.
    .attempts = {{.name = "hidden",
                  .probe = HiddenNumbers,
                  .control = {.place = Place::kOrdinaryUser, .reaches_kernel = true},
                  .expect = {.errnos = {ENOSYS}}},
                 {.name = "garbage", .probe = Garbage, .judge_only = true}},
    .judge = JudgeGarbage,
});

}  // namespace

}  // namespace caisson::escape
