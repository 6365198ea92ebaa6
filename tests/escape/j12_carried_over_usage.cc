// The usage of one check is reported for another.
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr int64_t kMiB = int64_t{1} << 20;

constexpr char kBig[] = "import time\nx = bytearray(300 << 20)\nx[::4096] = x[::4096]\ntime.sleep(.2)\n";
constexpr char kMany[] =
    "import os, time\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(.5); os._exit(0)\n"
    "for _ in range(30): os.wait()\n";
constexpr char kBusy[] = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass\n";

Judgement JudgeUsage(Host& host) {
  json checks = json::array(), files = json::object();
  for (const auto& [name, source] :
       {std::pair{"big", kBig}, std::pair{"many", kMany}, std::pair{"busy", kBusy}, std::pair{"small", "pass\n"}}) {
    files[std::string(name) + ".py"] = source;
    checks.push_back({{"name", name}, {"tier", "run"}, {"argv", {"python3", "-I", std::string(name) + ".py"}}});
  }
  const Outcome run =
      host.Verify(json{{"source", {{"files", files}}}, {"checks", checks}}.dump(), {"--timeout", "100s"});
  if (!run.result || run.result->status != "pass") return Broken("no pass: " + run.process.err);
  const json document = json::parse(run.result->text);
  const auto used = [&](size_t check, const char* what) {
    return document["checks"][check]["usage"].value(what, int64_t{-1});
  };
  // The control: each is seen where it belongs, so that it could have been carried over.
  if (used(0, "peak_memory_bytes") < 250 * kMiB || used(2, "cpu_ms") < 900)
    return Vacuous("this machine does not measure it where it belongs");
  for (const size_t check : {size_t{1}, size_t{2}, size_t{3}}) {
    if (used(check, "peak_memory_bytes") > 250 * kMiB)
      return Broken("memory of the first check is reported for check " + std::to_string(check + 1));
  }
  for (const size_t check : {size_t{2}, size_t{3}}) {
    if (used(check, "processes_peak") > 20)
      return Broken("processes of the second check are reported for check " + std::to_string(check + 1));
  }
  if (used(3, "cpu_ms") > 800) return Broken("CPU time of the third check is reported for the last one");
  const json& whole = document["usage"];
  if (whole.value("peak_memory_bytes", int64_t{0}) != used(0, "peak_memory_bytes"))
    return Broken("the run's peak is not that of its largest check");
  return Held("each check has its own peaks and CPU time, or none where they cannot be told apart");
}

const Registration kRow(Row{
    .id = "J12",
    .title = "the memory, processes and CPU time of one check are reported for the next",
    .severity = Severity::kIntegrity,
    .walls = {"usage of each check"},
    .judge = JudgeUsage,
});

}  // namespace

}  // namespace caisson::escape
