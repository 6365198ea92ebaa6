// Taking capabilities back: by asking, by the ambient set, by the bits that say when the kernel gives them.
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation Ask() {
  struct __user_cap_header_struct header {
    _LINUX_CAPABILITY_VERSION_3, 0
  };
  struct __user_cap_data_struct wanted[2] = {};
  wanted[0].effective = wanted[0].permitted = wanted[0].inheritable = 1U << CAP_SYS_ADMIN | 1U << CAP_CHOWN;
  const long result = Call(SYS_capset, &header, wanted);
  struct __user_cap_data_struct now[2] = {};
  if (Call(SYS_capget, &header, now) == 0 && (now[0].effective & 1U << CAP_SYS_ADMIN) != 0)
    return Escaped("CAP_SYS_ADMIN");
  return result < 0 ? Blocked(static_cast<int>(-result)) : Partial("answered, without effect");
}

Observation Ambient() {
  Ask();  // it must be inheritable first
  const long result = Call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0);
  return FromCall(result, "CAP_CHOWN is ambient");
}

Observation SecureBits() {
  return FromCall(Call(SYS_prctl, PR_SET_SECUREBITS, SECBIT_KEEP_CAPS, 0, 0, 0), "secure bits changed");
}

Observation KeepCaps() { return FromCall(Call(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0), "capabilities are kept"); }

Observation BecomeRoot() {
  Tally tally;
  tally.Add("setuid", Call(SYS_setuid, 0));
  tally.Add("setresuid", Call(SYS_setresuid, 0, 0, 0));
  tally.Add("setgid", Call(SYS_setgid, 0));
  return tally.Sum();
}

Attempt Try(const char* name, Observation (*probe)()) {
  return {.name = name, .probe = probe, .control = {.place = Place::kOwnNamespaces}};
}

const Registration kRow(Row{
    .id = "B03",
    .title = "capset, ambient capabilities, secure bits, setuid(0)",
    .severity = Severity::kEscape,
    .walls = {"capabilities", "seccomp", "user namespace"},
    .attempts = {Try("capset", Ask), Try("ambient", Ambient), Try("securebits", SecureBits), Try("keepcaps", KeepCaps),
                 Try("setuid", BecomeRoot)},
});

}  // namespace

}  // namespace caisson::escape
