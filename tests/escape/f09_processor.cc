// Takes all the processor time there is: by many threads, at the lowest priority, in bursts that a sampler misses, and
// without end.
//
// SAFETY: one second on a machine in use.
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// A tenth of one CPU; what is more than a quarter cannot come from a quota that is a little late.
constexpr char kCpus[] = "0.1";
constexpr int64_t kWallMs = 1000, kTooMuchMs = 250;
constexpr size_t kThreads = 4;

int64_t UsedMs() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

void* Spin(void* bursts) {
  for (const int64_t end = NowMs() + kWallMs; NowMs() < end;) {
    for (const int64_t burst = NowMs() + 4; NowMs() < burst;) {
    }
    if (bursts != nullptr) ::usleep(500);
  }
  return nullptr;
}

Observation Burn(bool bursts) {
  pthread_t threads[kThreads];
  int flag = 0;
  for (pthread_t& thread : threads) {
    if (const int error = ::pthread_create(&thread, nullptr, Spin, bursts ? &flag : nullptr); error != 0)
      return NotApplicable("no threads");
  }
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
  const std::string used = std::to_string(UsedMs()) + " ms of processor time in a second";
  return UsedMs() > kTooMuchMs ? Escaped(used) : Blocked(0, used);
}

Observation Idle() {
  struct sched_param none {};
  if (::sched_setscheduler(0, SCHED_IDLE, &none) != 0) ::nice(19);
  return Burn(false);
}

// A machine that nobody could use for long.
Observation Endless() {
  for (const int64_t end = NowMs() + 3000; NowMs() < end;) {
  }
  return Escaped("three seconds");
}

Judgement JudgeQuota(Host& host) {
  std::string held;
  for (const char* attempt : {"F09/threads", "F09/idle", "F09/bursts"}) {
    if (const auto bare = host.RunControl(attempt).Saw(attempt); !bare || bare->seen != Seen::kEscaped) continue;
    const Outcome run = host.Run({.command = host.ProbeCommand(attempt), .flags = {"--cpus", kCpus}});
    const auto saw = run.Saw(attempt);
    if (!run.result || !saw) return Broken(std::string(attempt) + ": it said nothing: " + run.process.err);
    const nlohmann::json document = nlohmann::json::parse(run.result->text);
    if (saw->seen != Seen::kBlocked) {
      if (document["isolation"]["degraded"].dump().find("cgroup") == std::string::npos)
        return Broken(std::string(attempt) + ": " + saw->detail);
      return Vacuous(std::string(attempt) + ": CPU time is not limited without a cgroup, as the result says");
    }
    held += std::string(held.empty() ? "" : ", ") + (attempt + 4);
  }
  return held.empty() ? Vacuous("this machine is too busy to tell") : Held("throttled: " + held);
}

const Registration kRow(Row{
    .id = "F09",
    .title = "all the processor time: threads, idle priority, bursts, no end",
    .severity = Severity::kPeerDenial,
    .walls = {"CPU quota", "time limit"},
    .attempts = {{.name = "threads", .probe = [] { return Burn(false); }, .judge_only = true},
                 {.name = "idle", .probe = Idle, .judge_only = true},
                 {.name = "bursts", .probe = [] { return Burn(true); }, .judge_only = true},
                 {.name = "endless",
                  .probe = Endless,
                  .expect = {.death = Death::kRequired, .reports = {{"TimeoutViolation", "command_timeout_ms"}}},
                  .flags = {"--timeout", "1s"}}},
    .judge = JudgeQuota,
});

}  // namespace

}  // namespace caisson::escape
