// Many short processes that each use little: only their sum exceeds the limit.
//
// SAFETY: one second on a machine in use.
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int64_t kWallMs = 1000, kTooMuchMs = 250;

int64_t OwnCpuMs() {
  struct timespec used {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000 + used.tv_nsec / 1'000'000;
}

[[noreturn]] void BurnAndEnd(int64_t ms, int64_t patience_ms = kWallMs) {
  const int64_t give_up = NowMs() + patience_ms;
  while (OwnCpuMs() < ms && NowMs() < give_up) {
  }
  ::_exit(0);
}

Observation Relay() {
  for (const int64_t end = NowMs() + kWallMs; NowMs() < end;) {
    pid_t children[4];
    for (pid_t& child : children) {
      child = ::fork();
      if (child == 0) BurnAndEnd(5);
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  }
  struct rusage usage {};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const int64_t ms =
      (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  const std::string used = std::to_string(ms) + " ms of processor time in a second";
  return ms > kTooMuchMs ? Escaped(used) : Blocked(0, used);
}

// Ten that their parent never waits for, so that its own account shows nothing of them.
Observation Orphans() {
  int done[2];
  if (::pipe(done) != 0) return NotApplicable("no pipe");
  for (int i = 0; i < 10; ++i) {
    if (::fork() != 0) continue;
    if (::fork() == 0) BurnAndEnd(50, kPatienceMs / 4);
    ::_exit(0);
  }
  ::close(done[1]);
  char end;
  (void)!::read(done[0], &end, 1);  // until the last of them has ended
  struct rusage usage {};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return usage.ru_utime.tv_sec == 0 && usage.ru_utime.tv_usec < 250'000 ? Escaped("half a second that nobody counts")
                                                                        : NotApplicable("they were counted");
}

Judgement JudgeSum(Host& host) {
  constexpr char kOrphans[] = "F10/orphans", kRelay[] = "F10/relay";
  if (const auto bare = host.RunControl(kOrphans).Saw(kOrphans); !bare || bare->seen != Seen::kEscaped)
    return Vacuous("even bare they are counted");
  const Outcome orphans = host.Run({.command = host.ProbeCommand(kOrphans)});
  if (!orphans.result || !orphans.Saw(kOrphans)) return Broken("it said nothing: " + orphans.process.err);
  const int64_t counted = orphans.result->cpu_ms;
  if (counted < 350) return Broken("of 500 ms used by orphans, the result shows " + std::to_string(counted));

  if (const auto bare = host.RunControl(kRelay).Saw(kRelay); !bare || bare->seen != Seen::kEscaped)
    return Held("orphans are counted; this machine is too busy for more");
  const Outcome relay = host.Run({.command = host.ProbeCommand(kRelay), .flags = {"--cpus", "0.1"}});
  const auto saw = relay.Saw(kRelay);
  if (!relay.result || !saw) return Broken("it said nothing: " + relay.process.err);
  if (saw->seen == Seen::kBlocked) return Held("the sum is counted and throttled");
  if (!relay.result->Lacks("cgroup")) return Broken(saw->detail);
  return Vacuous("orphans are counted, but CPU time is not limited without a cgroup, as the result says");
}

const Registration kRow(Row{
    .id = "F10",
    .title = "many short processes, each below any limit of its own",
    .severity = Severity::kPeerDenial,
    .walls = {"CPU quota"},
    .attempts = {{.name = "relay", .probe = Relay, .judge_only = true},
                 {.name = "orphans", .probe = Orphans, .judge_only = true}},
    .judge = JudgeSum,
});

}  // namespace

}  // namespace caisson::escape
