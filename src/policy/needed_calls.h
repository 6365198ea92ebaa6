// The system calls that the init process of a sandbox makes behind the filter: to report, to start a command, to reap
// and to exit. A profile's seccomp.deny applies to every process inside, so a profile that denies such a call would
// stop the sandbox instead of the workload; the reader of profiles refuses it.
//
// tests/sandbox/needed_calls_test.cc denies each of these calls, and every other call, and so shows that the list is
// complete and has no unneeded entry.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace caisson::policy {

inline constexpr std::array<std::string_view, 17> kNeededCalls = {
    "chdir",           "close",  "close_range", "dup2",  "execve",  "exit_group",
    "getcwd",          "ioctl",  "kill",        "prctl", "recvmsg", "rt_sigprocmask",
    "rt_sigtimedwait", "setsid", "vfork",       "wait4", "write"};

inline bool IsNeededCall(std::string_view name) {
  return std::find(kNeededCalls.begin(), kNeededCalls.end(), name) != kNeededCalls.end();
}

}  // namespace caisson::policy
