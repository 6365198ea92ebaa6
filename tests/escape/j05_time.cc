// Lies about time and identity: a false clock, work after the end, sources and limits that differ but look alike, and a
// different result in every run.
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

// Every limit of a run is part of its result's identity.
std::string FaultInPolicyDigest(Host& host) {
  std::set<std::string> digests;
  const auto digest_with = [&](const json& limits) {
    const json request = {{"source", {{"files", {{"a", "b"}}}}},
                          {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"true"}}}}},
                          {"limits", limits}};
    const Outcome run = host.Verify(request.dump());
    return run.result ? json::parse(run.result->text).value("policy_digest", "") : "";
  };
  const std::vector<json> limits = {{{"command_timeout_ms", 9'000}}, {{"memory_bytes", 99 << 20}}, {{"processes", 99}},
                                    {{"output_bytes", 99'000}},      {{"scratch_bytes", 9 << 20}}, {{"cpu", 0.9}}};
  for (const json& one : limits) {
    const std::string digest = digest_with(one);
    if (digest.size() != 64) return "no policy digest with " + one.dump();
    if (!digests.insert(digest).second) return "another limit, the same policy digest: " + one.dump();
  }
  return digest_with(limits[0]) == digest_with(limits[0]) ? "" : "a policy's digest changes by itself";
}

// A program that passes or fails as it likes: each run's own result is reported, and no earlier one instead.
std::string FaultInRepetition(Host& host) {
  const json request = {
      {"source", {{"files", {{"main.py", "import os, sys\nsys.exit(os.urandom(1)[0] % 2)\n"}}}}},
      {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "/workspace/main.py"}}}}}};
  std::set<std::string> results, digests;
  constexpr int kTurns = 64;  // once in 10^19, all of them agree
  for (int turn = 0; turn < kTurns && results.size() < 2; ++turn) {
    const Outcome run = host.Verify(request.dump());
    if (!run.result) return "no result: " + run.process.err;
    if ((run.result->status == "pass") != (run.result->exit_code == 0)) return "the result contradicts its exit code";
    results.insert(run.result->status);
    digests.insert(json::parse(run.result->text).value("source_digest", ""));
  }
  if (results.size() < 2) return "a program that ends by chance always ends in the same way";
  return digests.size() == 1 ? "" : "one source, two digests";
}

Judgement JudgeTime(Host& host) {
  for (auto* fault_in : {FaultInClock, FaultInDigests, FaultInPolicyDigest, FaultInRepetition}) {
    const std::string fault = fault_in(host);
    if (fault == "vacuous") return Vacuous("the program's own clock cannot be stopped here");
    if (!fault.empty()) return Broken(fault);
  }
  return Held("the supervisor's clock decides; source and limits have their digests; nothing is remembered");
}

const Registration kRow(Row{
    .id = "J05",
    .title = "a clock of its own; sources and limits that look alike; results by chance",
    .severity = Severity::kIntegrity,
    .walls = {"supervisor's monotonic clock", "source digest", "policy digest"},
    .judge = JudgeTime,
});

}  // namespace

}  // namespace caisson::escape
