// Ways around the filter from within the process: other entries to the kernel (vsyscall, a second vDSO, local
// descriptor tables), forged entries of /proc, its own filter or dispatcher.
#include <asm/ldt.h>
#include <asm/prctl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kSetSyscallUserDispatch = 59;
constexpr uintptr_t kVsyscallTime = 0xffffffffff600400;

Observation DescriptorTable() {
  struct user_desc entry {};
  entry.limit = 0xfffff;
  entry.seg_32bit = entry.limit_in_pages = entry.useable = 1;
  return FromCall(Call(SYS_modify_ldt, 1, &entry, sizeof(entry)), "a descriptor of its own");
}

// There is one already, which the kernel reports only after it has examined the request.
Observation SecondVdso() {
  return FromHarmlessCall(Call(SYS_arch_prctl, 0x2003 /* ARCH_MAP_VDSO_64 */, 0x10000000), {EEXIST},
                          "ARCH_MAP_VDSO_64");
}

Observation NullPage() {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return page == MAP_FAILED ? Blocked(errno) : Escaped("a page at address 0");
}

// The kernel emulates time(2) there; the filter hides time(2).
Observation Vsyscall() {
  const Ended ended = InChild([] {
    const auto function = reinterpret_cast<time_t (*)(time_t*)>(kVsyscallTime);
    const time_t now = function(nullptr);
    return now > 1'000'000'000 ? 42 : static_cast<int>(-now);
  });
  if (ended.exited && ended.code == 42) return Escaped("the time by vsyscall");
  return Blocked(ended.code, "signal " + std::to_string(ended.signal));
}

Observation SetMm() {
  return FromHarmlessCall(Call(SYS_prctl, PR_SET_MM, PR_SET_MM_BRK, 0, 0, 1), {EINVAL}, "PR_SET_MM");
}

long InstallFilter(unsigned flags) {
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program {
    1, &allow
  };
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return Call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

// A second filter that allows everything must not disable the first.
Observation Loosen() {
  const long installed = InstallFilter(0);
  if (installed < 0) return Blocked(static_cast<int>(-installed), "no second filter");
  return FromCall(Call(SYS_unshare, CLONE_NEWUSER), "a user namespace after a second filter");
}

Observation Listen() { return FromCall(InstallFilter(SECCOMP_FILTER_FLAG_NEW_LISTENER), "a listener of its own"); }

Observation Dispatch() {
  static char selector = 0;
  const long result = Call(SYS_prctl, kSetSyscallUserDispatch, 1, 0, 0, &selector);
  if (result == 0) Call(SYS_prctl, kSetSyscallUserDispatch, 0, 0, 0, 0);
  return FromCall(result, "dispatches its own calls");
}

ParkedSetup Denied(const char* reason, const char* syscall) {
  return {.errnos = {EPERM}, .reports = {{"SyscallViolation", reason, syscall}}};
}

const Registration kRow(Row{
    .id = "A18",
    .title = "around the filter: LDT, vDSO, vsyscall, page 0, filters of its own",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "capabilities"},
    .attempts =
        {{.name = "modify_ldt", .probe = DescriptorTable, .expect = Denied("syscall.kernel", "modify_ldt")},
         {.name = "vdso", .probe = SecondVdso, .control = {.reaches_kernel = true}, .expect = {.errnos = {EPERM}}},
         {.name = "page_0", .probe = NullPage, .expect = {.errnos = {EPERM, EACCES}}},
         {.name = "vsyscall", .probe = Vsyscall, .expect = {}},
         {.name = "set_mm",
          .probe = SetMm,
          .control = {.reaches_kernel = true},
          .expect = Denied("syscall.kernel", "prctl")},
         {.name = "loosen", .probe = Loosen, .expect = Denied("syscall.ns", "unshare")},
         {.name = "listener", .probe = Listen, .expect = Denied("syscall.kernel", "seccomp")},
         {.name = "dispatch", .probe = Dispatch, .expect = Denied("syscall.kernel", "prctl")}},
});

}  // namespace

}  // namespace caisson::escape
