// Kills the test driver, or makes it end ambiguously, in the hope that silence counts as success.
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

struct Case {
  const char* name;
  const char* library;        // imported by a test that fails
  const char* failure_class;  // null: any, for it waits until its time is over
};

const Case kCases[] = {
    {"the runner is killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "CheckFailed"},
    {"its parent is killed", "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1)\n",
     "CheckFailed"},
    {"its parent is asked to end", "import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(1)\n",
     "CheckFailed"},
    {"its parent is interrupted", "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(1)\n",
     "CheckFailed"},
    {"everybody is killed", "import os, signal\nos.kill(-1, signal.SIGKILL)\n", "CheckFailed"},
    {"the signal of a forbidden call", "import os, signal\nos.kill(os.getpid(), signal.SIGSYS)\n", "CheckFailed"},
    {"the exit code of a time limit", "import os\nos._exit(124)\n", "CheckFailed"},
    {"the exit code of a memory limit", "import os\nos._exit(137)\n", "CheckFailed"},
    {"an exit code that is 0 in eight bits", "import os\nos._exit(256)\n", "CheckFailed"},
    {"memory until somebody is killed", "b = []\nwhile True: b.append(bytearray(1 << 22))\n", "MemoryLimitViolation"},
    {"the parent is stopped", "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos._exit(0)\n", nullptr},
};

Judgement JudgeCases(Host& host) {
  // Longer than a request may ask for: an emulated machine takes most of a minute to fill a little memory.
  const auto test = [&](const std::string& library, bool fails, const char* timeout = "150s") {
    const std::string tests =
        std::string("import unittest\nimport lib\nclass T(unittest.TestCase):\n    def test_it(self): ") +
        (fails ? "self.fail()\n" : "pass\n");
    return host.Verify(
        json{{"source", {{"files", {{"lib.py", library}, {"test_lib.py", tests}, {"main.py", "pass\n"}}}}},
             {"limits", {{"memory_bytes", 128 << 20}}}}
            .dump(),
        {"--timeout", timeout});
  };
  const Outcome control = test("", false);
  if (!control.result || control.result->status != "pass")
    return Vacuous("tests cannot be run here: " + control.process.err);
  std::string faults;
  for (const Case& one : kCases) {
    const Outcome run = one.failure_class != nullptr ? test(one.library, true) : test(one.library, true, "6s");
    const std::string got = run.result ? run.result->status + " " + run.result->failure_class : run.process.err;
    const bool right = run.result && run.result->status == "fail" &&
                       (one.failure_class == nullptr || run.result->failure_class == one.failure_class);
    if (!right) faults += std::string(faults.empty() ? "" : "; ") + one.name + ": " + got;
  }
  return faults.empty() ? Held("each is a failure, and of its own kind") : Broken(faults);
}

const Registration kRow(Row{
    .id = "J04",
    .title = "killing the test driver; exit codes that mean something else",
    .severity = Severity::kIntegrity,
    .walls = {"verdict from wait status and counters"},
    .judge = JudgeCases,
});

}  // namespace

}  // namespace caisson::escape
