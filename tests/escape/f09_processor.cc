// Takes all the processor time there is: by many threads, at the lowest priority, in bursts that a sampler misses, and
// without end.
//
// SAFETY: one second on a machine in use.
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// A tenth of one CPU; more than a quarter cannot be explained by a quota that is enforced a little late.
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

// A machine on which no process gets much CPU time.
Observation Endless() {
  for (const int64_t end = NowMs() + 3000; NowMs() < end;) {
  }
  return Escaped("three seconds");
}

// On every processor, until it is killed.
Observation BurnWithoutEnd() {
  for (size_t i = 1; i < kThreads; ++i) {
    if (::fork() == 0) break;
  }
  std::puts("READY");
  std::fflush(stdout);
  for (volatile unsigned turn = 0;;) turn = turn + 1;
}

Observation Work() {
  volatile unsigned sum = 0;
  for (unsigned i = 0; i < 20'000'000; ++i) sum = sum + i;
  return Blocked(0, "worked");
}

// Milliseconds in what Burn says.
int64_t UsedIn(const Observation& observation) { return std::atoll(observation.detail.c_str()); }

Judgement JudgeQuota(Host& host) {
  std::string held;
  for (const char* attempt : {"F09/threads", "F09/idle", "F09/bursts"}) {
    if (const auto bare = host.RunControl(attempt).Saw(attempt); !bare || bare->seen != Seen::kEscaped) continue;
    const Outcome run = host.Run({.command = host.ProbeCommand(attempt), .flags = {"--cpus", kCpus}});
    const auto saw = run.Saw(attempt);
    if (!run.result || !saw) return Broken(std::string(attempt) + ": it said nothing: " + run.process.err);
    // A machine that is itself throttled charges time that no process used. Then the program's own measurement counts.
    if (saw->seen != Seen::kBlocked && run.result->throttled_ms < kWallMs / 2) {
      if (!run.result->Lacks("cgroup")) return Broken(std::string(attempt) + ": " + saw->detail);
      return Vacuous(std::string(attempt) + ": CPU time is not limited without a cgroup, as the result says");
    }
    // Counted from outside, so what a sampler inside or outside would miss is in it. Without a cgroup it is counted in
    // the scheduler's ticks, of which each thread's last is not.
    const int64_t uncounted = run.result->Lacks("cgroup") ? UsedIn(*saw) / 5 : 0;
    if (run.result->cpu_ms + uncounted < UsedIn(*saw))
      return Broken(std::string(attempt) + ": the result shows only " + std::to_string(run.result->cpu_ms) + " of " +
                    saw->detail);
    held += std::string(held.empty() ? "" : ", ") + (attempt + 4);
  }
  return held.empty() ? Vacuous("this machine is too busy to tell") : Held("throttled: " + held);
}

// Two at once: the endless program gets its tenth by the kernel's account, and the other one does its work.
Judgement JudgeNeighbour(Host& host) {
  constexpr char kTimeout[] = "4s";
  Sandbox burner =
      host.Start({.command = host.ProbeCommand("F09/burner"), .flags = {"--cpus", kCpus, "--timeout", kTimeout}});
  std::string line;
  if (!burner.process.ReadLine(&line, kPatienceMs))
    return Broken("nothing burns: " + host.Finish(std::move(burner)).process.err);
  const Outcome worker = host.Run({.command = host.ProbeCommand("F09/work")});
  const Outcome burnt = host.Finish(std::move(burner));
  if (!worker.Saw("F09/work")) return Broken("the neighbour did not get its work done: " + worker.process.err);
  if (!burnt.result || burnt.result->Find("TimeoutViolation", "command_timeout_ms") == nullptr)
    return Broken("burning without end did not end as a timeout");
  const int64_t share = nlohmann::json::parse(burnt.result->text).value("duration_ms", int64_t{0}) / 4;
  return burnt.result->cpu_ms <= share || burnt.result->throttled_ms >= 2 * share
             ? Held("the neighbour worked")
             : Broken("with a neighbour it used " + std::to_string(burnt.result->cpu_ms) + " ms of processor time");
}

Judgement JudgeProcessor(Host& host) {
  const Judgement quota = JudgeQuota(host);
  if (quota.verdict != Verdict::kPass) return quota;
  const Judgement neighbour = JudgeNeighbour(host);
  return neighbour.verdict == Verdict::kPass ? Held(quota.detail + "; " + neighbour.detail) : neighbour;
}

const Registration kRow(Row{
    .id = "F09",
    .title = "all the processor time: threads, idle priority, bursts, no end",
    .severity = Severity::kPeerDenial,
    .walls = {"CPU quota", "time limit"},
    .attempts = {{.name = "threads", .probe = [] { return Burn(false); }, .judge_only = true},
                 {.name = "idle", .probe = Idle, .judge_only = true},
                 {.name = "bursts", .probe = [] { return Burn(true); }, .judge_only = true},
                 {.name = "burner", .probe = BurnWithoutEnd, .judge_only = true},
                 {.name = "work", .probe = Work, .judge_only = true},
                 {.name = "endless",
                  .probe = Endless,
                  .expect = {.death = Death::kRequired, .reports = {{"TimeoutViolation", "command_timeout_ms"}}},
                  .flags = {"--timeout", "1s"}}},
    .judge = JudgeProcessor,
});

}  // namespace

}  // namespace caisson::escape
