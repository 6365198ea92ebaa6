// Hides what ended the run behind earlier refusals, or blames its own failure on one of them.
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr char kReport[] = "version: 1\nname: report\nextends: balanced\non_violation: report\n";

// perf_event_open is refused and bpf ends the run; both have the reason syscall.kernel.
constexpr char kProgram[] = R"(
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
for i in range(int(sys.argv[1])): libc.syscall(298, 0, 0, 0, 0, 0)
if sys.argv[2] == 'killed': libc.syscall(321, 0, 0, 0)
if sys.argv[2] == 'late': time.sleep(60)
if sys.argv[2] == 'loud':
    while True: os.write(1, b'x' * 65536)
if sys.argv[2] == 'fails': os._exit(3)
)";

struct Case {
  const char* how;
  const char* failure_class;
  const char* reason;  // of the last violation listed; null: none ended it
};

constexpr Case kCases[] = {{"killed", "SyscallViolation", "syscall.kernel"},
                           {"late", "TimeoutViolation", "command_timeout_ms"},
                           {"loud", "OutputLimitViolation", "limit.output"},
                           {"fails", "CheckFailed", nullptr}};

std::string FaultIn(Host& host, const std::string& profile, const Case& one, int before) {
  const Outcome run = host.Run({.command = {"python3", "-I", "-c", kProgram, std::to_string(before), one.how},
                                .flags = {"--profile", profile, "--timeout", "4s", "--output-limit", "1M", "--json"}});
  if (!run.result) return "no result: " + run.process.err;
  if (run.result->failure_class != one.failure_class) return "it is called " + run.result->failure_class;
  if (one.reason == nullptr) return "";
  const json violations = json::parse(run.result->text)["violations"];
  if (violations.empty() || violations.back()["class"] != one.failure_class ||
      violations.back()["reason"] != one.reason)
    return "what ended it is not listed";
  if (std::string(one.how) == "killed" && violations.back()["evidence"].value("answer", "") != "killed")
    return "an earlier one of its kind is listed instead";
  return "";
}

Judgement JudgeEndings(Host& host) {
  const std::string profile = host.WriteFile("report.yaml", kReport);
  for (const Case& one : kCases) {
    if (const std::string fault = FaultIn(host, profile, one, 0); !fault.empty())
      return Vacuous(std::string(one.how) + ", with nothing before it: " + fault);
  }
  for (const Case& one : kCases) {
    for (const int before : {1, 64, 300}) {
      if (const std::string fault = FaultIn(host, profile, one, before); !fault.empty())
        return Broken(std::string(one.how) + " after " + std::to_string(before) + " refusals: " + fault);
    }
  }
  return Held("what ended it is listed and names the class; a plain failure has no other's class");
}

const Registration kRow(Row{
    .id = "J11",
    .title = "what ended the run is lost among earlier refusals, or an earlier one is blamed",
    .severity = Severity::kIntegrity,
    .walls = {"the violation that ended the command is always listed"},
    .judge = JudgeEndings,
});

}  // namespace

}  // namespace caisson::escape
