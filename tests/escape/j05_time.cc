// Lies about time and identity: a clock of its own, work after the end, and sources that differ but look alike.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

// A second passes; its own clock shows none of it.
const char kFrozenClock[] = R"(
import os, signal, sys, time
sleep = time.sleep
for name in ('time', 'monotonic', 'perf_counter', 'process_time'): setattr(time, name, lambda: 0.0)
for n in range(1, 32):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
sleep(float(sys.argv[1]))
print('SLEPT', time.monotonic())
)";

std::string FaultInClock(Host& host) {
  const int64_t start = NowMs();
  const Outcome slept = host.Run({.command = {"python3", "-I", "-c", kFrozenClock, "1.0"}});
  const int64_t took = NowMs() - start;
  if (!slept.result || slept.process.out.find("SLEPT 0.0") == std::string::npos) return "vacuous";
  const int64_t reported = json::parse(slept.result->text).value("duration_ms", int64_t{0});
  if (reported < 1000 || reported > took)
    return "of " + std::to_string(took) + " ms it reports " + std::to_string(reported);

  const Outcome late =
      host.Run({.command = {"python3", "-I", "-c", kFrozenClock, "10"}, .flags = {"--timeout", "700ms"}});
  const ReportedViolation* found = late.result ? late.result->Find("TimeoutViolation", "command_timeout_ms") : nullptr;
  if (found == nullptr || late.process.exit_code != 124) return "a frozen clock outlives the time limit";
  const auto elapsed = found->evidence.find("elapsed_ms");
  if (elapsed == found->evidence.end() || std::atoll(elapsed->second.c_str()) < 700)
    return "the evidence shows too little time";
  return "";
}

std::string DigestOf(Host& host, const json& source) {
  const Outcome run =
      host.Verify(json{{"source", source}, {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"true"}}}}}}.dump());
  return run.result ? json::parse(run.result->text).value("source_digest", "") : "";
}

// Pairs that a careless hash takes for one: moved borders, moved names, another mode, a link instead of a file.
std::string FaultInDigests(Host& host) {
  std::vector<json> sources = {{{"files", {{"ab", "c"}}}},           {{"files", {{"a", "bc"}}}},
                               {{"files", {{"a", "b"}, {"c", ""}}}}, {{"files", {{"a", ""}, {"c", "b"}}}},
                               {{"files", {{"a/b", "c"}}}},          {{"files", {{"a", "b/c"}}}},
                               {{"files", {{"a\nf x", "c"}}}},       {{"files", {{"a", "c"}, {"x", "c"}}}}};
  for (int kind = 0; kind < 5; ++kind) {
    const std::string directory = host.MakeDirectory();
    std::ofstream(directory + "/a") << "target";
    if (kind == 1) ::chmod((directory + "/a").c_str(), 0755);
    if (kind == 2) ::mkdir((directory + "/empty").c_str(), 0755);
    if (kind == 3) (void)!::symlink("a", (directory + "/b").c_str());
    if (kind == 4) std::ofstream(directory + "/b") << "a";
    sources.push_back({{"path", directory}});
  }
  std::set<std::string> digests;
  for (const json& source : sources) {
    const std::string digest = DigestOf(host, source);
    if (digest.size() != 64) return "no digest for " + source.dump();
    if (!digests.insert(digest).second) return "two sources share a digest: " + source.dump();
  }
  // And the same source, the same digest.
  return DigestOf(host, sources[0]) == DigestOf(host, sources[0]) ? "" : "a source's digest changes by itself";
}

Judgement JudgeTime(Host& host) {
  for (auto* fault_in : {FaultInClock, FaultInDigests}) {
    const std::string fault = fault_in(host);
    if (fault == "vacuous") return Vacuous("the program's own clock cannot be stopped here");
    if (!fault.empty()) return Broken(fault);
  }
  return Held("the supervisor's clock decides; every source has its own digest");
}

const Registration kRow(Row{
    .id = "J05",
    .title = "a clock of its own; sources that look alike",
    .severity = Severity::kIntegrity,
    .walls = {"supervisor's monotonic clock", "source digest"},
    .judge = JudgeTime,
});

}  // namespace

}  // namespace caisson::escape
