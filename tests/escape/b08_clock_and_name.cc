// The host's name and clock.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr long kBadAddress = 1;

// In a name space of its own in the control.
Observation HostName() {
  constexpr char kNew[] = "taken-over";
  const long result = Call(SYS_sethostname, kNew, sizeof(kNew) - 1);
  struct utsname name {};
  ::uname(&name);
  return ::strcmp(name.nodename, kNew) == 0 ? Escaped("renamed") : FromCall(result, "no effect");
}

Observation DomainName() { return FromCall(Call(SYS_setdomainname, "taken-over", 10), "renamed"); }

// An unreadable time: the kernel reports that before it checks the caller's rights.
Observation Clock() {
  Tally tally;
  const auto reach = [&](const char* name, long result) { tally.Add(name, FromHarmlessCall(result, {EFAULT}, "")); };
  reach("settimeofday", Call(SYS_settimeofday, kBadAddress, nullptr));
  reach("clock_settime", Call(SYS_clock_settime, CLOCK_REALTIME, kBadAddress));
  reach("adjtimex", Call(SYS_adjtimex, kBadAddress));
  reach("clock_adjtime", Call(SYS_clock_adjtime, CLOCK_REALTIME, kBadAddress));
  return tally.Sum();
}

Observation RealTimeClock() {
  const int fd = ::open("/dev/rtc0", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Blocked(errno);
  ::close(fd);
  return Escaped("opened");
}

const Registration kRow(Row{
    .id = "B08",
    .title = "the host's name and clock: sethostname, settimeofday, /dev/rtc0",
    .severity = Severity::kHostDenial,
    .walls = {"seccomp", "capabilities", "uts namespace"},
    .attempts = {{.name = "hostname",
                  .probe = HostName,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.kernel", "sethostname"}}}},
                 {.name = "domainname",
                  .probe = DomainName,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.kernel", "setdomainname"}}}},
                 {.name = "clock",
                  .probe = Clock,
                  .control = {.reaches_kernel = true},
                  .expect = {.errnos = {EPERM},
                             .reports = {{"SyscallViolation", "syscall.clock", "settimeofday"},
                                         {"SyscallViolation", "syscall.clock", "clock_settime"},
                                         {"SyscallViolation", "syscall.clock", "adjtimex"},
                                         {"SyscallViolation", "syscall.clock", "clock_adjtime"}}}},
                 {.name = "rtc", .probe = RealTimeClock, .expect = {.errnos = {ENOENT}}}},
});

}  // namespace

}  // namespace caisson::escape
