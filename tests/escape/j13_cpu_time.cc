// Uses more CPU time than it may: at once, by children, by children that are never waited for, in bursts, and by ending
// before the supervisor samples.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr int64_t kLimitMs = 600;

// Each stops by itself after far more than the limit, so that a control ends.
constexpr char kBurn[] = R"(
import os, signal, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
def child(seconds):
    pid = os.fork()
    if pid == 0: burn(seconds); os._exit(0)
    return pid
how = sys.argv[1]
if how == 'alone': burn(2)
if how == 'ends': burn(.8)
if how == 'children':
    for pid in [child(1.5), child(1.5)]: os.waitpid(pid, 0)
if how == 'one by one':
    for _ in range(20): os.waitpid(child(.1), 0)
if how == 'abandoned':
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(20): child(.1); time.sleep(.11)
    time.sleep(.3)
if how == 'bursts':
    for _ in range(100): burn(.02); time.sleep(.005)
)";

constexpr const char* kWays[] = {"alone", "ends", "children", "one by one", "abandoned", "bursts"};

Judgement JudgeCpuTime(Host& host) {
  const std::string limit = std::to_string(kLimitMs) + "ms";
  for (const char* how : kWays) {
    const std::vector<std::string> command = {"python3", "-I", "-c", kBurn, how};
    const Outcome free = host.Run({.command = command, .flags = {"--timeout", "120s"}});
    if (!free.result || free.result->status != "pass") return Vacuous(std::string(how) + ": " + free.process.err);
    const Outcome run = host.Run({.command = command, .flags = {"--timeout", "120s", "--cpu-time", limit}});
    const ReportedViolation* found = run.result ? run.result->Find("TimeoutViolation", "cpu_time_ms") : nullptr;
    if (found == nullptr || run.process.exit_code != 124 || run.result->failure_class != "TimeoutViolation")
      return Broken(std::string(how) + ": more than " + limit + " of CPU time goes unnoticed");
    const auto measured = found->evidence.find("cpu_ms");
    if (measured == found->evidence.end() || std::atoll(measured->second.c_str()) < kLimitMs)
      return Broken(std::string(how) + ": the evidence shows less than the limit");
  }
  // Waiting time is not CPU time.
  const Outcome idle = host.Run({.command = {"python3", "-I", "-c", "import time; time.sleep(1.5)"},
                                 .flags = {"--timeout", "120s", "--cpu-time", "1s"}});
  if (!idle.result || idle.result->status != "pass") return Broken("a program that only waits is called too busy");
  return Held("CPU time of all processes counts, and nothing else does");
}

const Registration kRow(Row{
    .id = "J13",
    .title = "more CPU time than allowed: by children, abandoned children, in bursts, or before the supervisor samples",
    .severity = Severity::kIntegrity,
    .walls = {"CPU time limit"},
    .judge = JudgeCpuTime,
});

}  // namespace

}  // namespace caisson::escape
