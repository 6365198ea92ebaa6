// One run of /bin/true as a service pays for it: sandboxes made in this process and by a launcher, in turns, so that
// what else the machine does falls on both alike. Prints medians with tenth and ninetieth percentile, in microseconds,
// of the three parts of a run: until the sandbox stands, the command, and until nothing is left.
//
//   bench_runs ROUNDS LAUNCHER_SOCKET...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "policy/profile.h"
#include "runtime/native/launched.h"
#include "runtime/native/native.h"

namespace {

using namespace caisson;

policy::RunPlan TruePlan() {
  policy::RunPlan plan;
  plan.profile = *policy::FindBuiltIn("balanced");
  plan.limits = plan.profile.limits;
  plan.workspace_files.push_back({"main.txt", "hello\n", 0644, policy::FileKind::kRegular});
  policy::PlannedCommand command;
  command.argv = {"/bin/true"};
  plan.commands.push_back(std::move(command));
  return plan;
}

struct Times {
  std::vector<int64_t> start, command, removal, whole;
  int parked = 0;
};

bool Measure(runtime::Runtime& runtime, Times& times) {
  runtime::ExecuteOptions options;
  options.timeout_ms = 30'000;
  policy::RunPlan plan = TruePlan();
  const int64_t begin = MonotonicNanos();
  Result<std::unique_ptr<runtime::Run>> run = runtime.Start(std::move(plan));
  const int64_t started = MonotonicNanos();
  if (!run) return std::fprintf(stderr, "%s\n", run.error().message.c_str()), false;
  const Result<CommandOutcome> outcome = (*run)->Execute(0, options);
  const int64_t ended = MonotonicNanos();
  if (!outcome || outcome->exit_code != 0) return std::fprintf(stderr, "the command failed\n"), false;
  times.parked += (*run)->isolation().start == "parked" ? 1 : 0;
  run->reset();
  const int64_t removed = MonotonicNanos();
  times.start.push_back((started - begin) / 1000);
  times.command.push_back((ended - started) / 1000);
  times.removal.push_back((removed - ended) / 1000);
  times.whole.push_back((ended - begin) / 1000);
  return true;
}

void Print(const char* name, const char* part, std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](size_t percent) { return static_cast<long long>(values[values.size() * percent / 100]); };
  std::printf("%-24s %-9s median %6lld  p10 %6lld  p90 %6lld\n", name, part, at(50), at(10), at(90));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "bench_runs ROUNDS LAUNCHER_SOCKET...\n"), 2;
  std::map<std::string, std::unique_ptr<runtime::Runtime>> runtimes;
  runtimes.emplace("in this process", runtime::native::MakeNativeRuntime());
  for (int i = 2; i < argc; ++i) runtimes.emplace(argv[i], runtime::native::MakeLaunchedRuntime(std::string(argv[i])));
  std::map<std::string, Times> times;
  for (int round = std::atoi(argv[1]); round > 0; --round) {
    for (auto& [name, runtime] : runtimes) {
      if (!Measure(*runtime, times[name])) return 1;
    }
  }
  for (const auto& [name, measured] : times) {
    Print(name.c_str(), "start", measured.start);
    Print(name.c_str(), "command", measured.command);
    Print(name.c_str(), "both", measured.whole);
    Print(name.c_str(), "removal", measured.removal);
    std::printf("%-24s %d of %zu parked\n", name.c_str(), measured.parked, measured.start.size());
  }
  return 0;
}
