// Raises its stack above the limit.
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr rlim_t kWanted = rlim_t{64} << 20;  // the sandbox's default is 8 MiB

Observation Raise(bool by_prlimit) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return NotApplicable("its own limit cannot be read");
  // Outside, where the limit is already larger, setting it counts as a success.
  limit.rlim_cur = kWanted;
  if (limit.rlim_max < kWanted) limit.rlim_max = kWanted;
  return FromCall(
      by_prlimit ? Call(SYS_prlimit64, 0, RLIMIT_STACK, &limit, nullptr) : Call(SYS_setrlimit, RLIMIT_STACK, &limit),
      "has a stack of 64 MiB");
}

// Frame by frame, until half of what it wants is in use.
[[gnu::noinline]] long Descend(rlim_t left) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(left);
  return left < sizeof(frame) ? frame[0] : Descend(left - sizeof(frame)) + frame[0];
}

Observation Deep() {
  (void)Raise(false);
  Descend(kWanted / 2);
  return Escaped("32 MiB of stack in use");
}

const Registration kRow(Row{
    .id = "J14",
    .title = "a larger stack than the limit allows",
    .severity = Severity::kIntegrity,
    .walls = {"resource limits"},
    .attempts = {{.name = "setrlimit", .probe = [] { return Raise(false); }, .expect = {.errnos = {EPERM}}},
                 {.name = "prlimit", .probe = [] { return Raise(true); }, .expect = {.errnos = {EPERM}}},
                 {.name = "deep", .probe = Deep, .judge_only = true}},
    .judge = [](Host& host) -> Judgement {
      const auto bare = host.RunControl("J14/deep").Saw("J14/deep");
      if (!bare || bare->seen != Seen::kEscaped) return Vacuous("a deep stack cannot be had here anyway");
      const Outcome run = host.Run({.command = host.ProbeCommand("J14/deep")});
      if (!run.result || run.Saw("J14/deep")) return Broken("32 MiB of stack under a limit of 8 MiB");
      if (run.result->failure_class != "CheckFailed" || run.result->signal != 11)
        return Broken("it ended as " + run.result->failure_class);
      const Outcome roomy = host.Run({.command = host.ProbeCommand("J14/deep"), .flags = {"--stack", "64M"}});
      if (!roomy.Saw("J14/deep")) return Broken("64 MiB were allowed, and 32 MiB are refused");
      return Held("SIGSEGV at the limit, and none below it");
    },
});

}  // namespace

}  // namespace caisson::escape
