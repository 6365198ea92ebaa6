// Parts of the kernel that no checked program needs and most exploits do.
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// A command there is none of.
Observation Bpf() { return Survived(Call(SYS_bpf, 9999, nullptr, 0), "bpf"); }

Observation LookupDcookie() { return Survived(Call(SYS_lookup_dcookie, 0, nullptr, 0), "lookup_dcookie"); }

Observation PerfEvent() {
  struct perf_event_attr event {};
  event.type = PERF_TYPE_SOFTWARE;
  event.size = sizeof(event);
  event.config = PERF_COUNT_SW_TASK_CLOCK;
  event.exclude_kernel = event.exclude_hv = 1;
  const long fd = Call(SYS_perf_event_open, &event, 0, -1, -1, 0);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return FromCall(fd, "a counter");
}

Observation UserFault() {
  constexpr int kUserModeOnly = 1;
  const long fd = Call(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return FromCall(fd, "faults are handled by the program");
}

Observation UserFaultDevice() {
  const int fd = ::open("/dev/userfaultfd", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Blocked(errno);
  ::close(fd);
  return Escaped("the device can be opened");
}

Observation Fanotify() {
  const long fd = Call(SYS_fanotify_init, 0x200 /* FAN_REPORT_FID, which needs no privilege */, O_RDONLY);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return FromCall(fd, "watches file systems");
}

ParkedSetup Denied(const char* syscall) {
  return {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.kernel", syscall}}};
}
ParkedSetup Killed(const char* syscall) {
  return {.death = Death::kRequired, .reports = {{"SyscallViolation", "syscall.kernel", syscall}}};
}

const Registration kRow(Row{
    .id = "A10",
    .title = "bpf, perf_event_open, userfaultfd, lookup_dcookie, fanotify",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "own /dev"},
    .attempts = {{.name = "bpf", .probe = Bpf, .control = {.reaches_kernel = true}, .expect = Killed("bpf")},
                 {.name = "lookup_dcookie",
                  .probe = LookupDcookie,
                  .control = {.reaches_kernel = true},
                  .expect = Killed("lookup_dcookie")},
                 {.name = "perf_event_open", .probe = PerfEvent, .expect = Denied("perf_event_open")},
                 {.name = "userfaultfd", .probe = UserFault, .expect = Denied("userfaultfd")},
                 {.name = "dev_userfaultfd", .probe = UserFaultDevice, .expect = {.errnos = {ENOENT}}},
                 // Watchers ask for this form, so it is only noticed; J08 has the others.
                 {.name = "fanotify", .probe = Fanotify, .expect = {.errnos = {EPERM}}}},
});

}  // namespace

}  // namespace caisson::escape
