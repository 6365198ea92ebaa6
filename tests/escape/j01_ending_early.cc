// Ends the process before the tests have run, with the exit code of success. Every source here has a test that fails,
// so the verdict must not be "pass" whatever the code does before.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

const char kFailing[] =
    "import unittest\nimport lib\nclass T(unittest.TestCase):\n    def test_it(self): self.fail()\n";

// In the library under test, which the tests import.
const std::pair<const char*, const char*> kLibraries[] = {
    {"_exit at import", "import os\nos._exit(0)\n"},
    {"exit at import", "import sys\nsys.exit(0)\n"},
    {"exit at import, in a thread",
     "import os, threading, time\nthreading.Thread(target=lambda: os._exit(0)).start()\ntime.sleep(5)\n"},
    {"_exit when the interpreter ends", "import atexit, os\natexit.register(os._exit, 0)\n"},
    {"_exit in a destructor", "import os\nclass D:\n    def __del__(self, end=os._exit): end(0)\nkept = D()\n"},
    {"_exit in a signal handler",
     "import os, signal, time\nsignal.signal(signal.SIGALRM, lambda *_: os._exit(0))\n"
     "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(5)\n"},
    {"exit by the C library", "import ctypes\nctypes.CDLL(None)._exit(0)\n"},
    {"another program instead", "import os\nos.execv('/bin/true', ['true'])\n"},
    {"an exit hook", "import os, sys\nsys.excepthook = lambda *_: os._exit(0)\nraise RuntimeError\n"},
    {"the parent's end", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos._exit(0)\n"},
    {"everybody's end", "import os, signal\nos.kill(-1, signal.SIGTERM)\nos._exit(0)\n"},
    {"a child that says all is well", "import os\nif os.fork(): os._exit(0)\n"},
    {"a word to every descriptor",
     "import os\nfor fd in range(3, 256):\n    for word in (b'0', b'0\\n', b'ok\\n', b'complete 0\\n'):\n"
     "        try: os.write(fd, word)\n        except OSError: pass\nos._exit(0)\n"},
    {"every descriptor closed", "import os\nos.closerange(0, 256)\nos._exit(0)\n"},
};

// The default checks, as `caisson verify DIRECTORY` runs them.
Outcome Test(Host& host, const std::string& library, const std::string& tests) {
  return host.Verify(json{{"source", {{"files", {{"lib.py", library}, {"test_lib.py", tests}, {"main.py", "pass\n"}}}}},
                          {"limits", {{"command_timeout_ms", 45'000}}}}
                         .dump());
}

Judgement JudgeEndings(Host& host) {
  const std::string passing = "import unittest\nimport lib\nclass T(unittest.TestCase):\n    def test_it(self): pass\n";
  const Outcome control = Test(host, "", passing), failing = Test(host, "", kFailing);
  if (!control.result || control.result->status != "pass" || !failing.result || failing.result->status != "fail")
    return Vacuous("tests cannot be run here: " + control.process.err + control.process.out.substr(0, 400));
  std::string passed;
  for (const auto& [name, library] : kLibraries) {
    const Outcome run = Test(host, library, kFailing);
    if (!run.result) return Broken(std::string(name) + ": no result: " + run.process.err);
    if (run.result->status == "pass") passed += std::string(passed.empty() ? "" : ", ") + name;
    if (run.result->status == "pass") continue;
    if (run.result->status != "fail" || run.result->failure_class != "CheckFailed" || !run.result->violations.empty())
      return Broken(std::string(name) + ": " + run.result->status + " " + run.result->failure_class);
  }
  if (!passed.empty()) return Broken("passed without a test: " + passed);
  const Outcome early = Test(host, kLibraries[0].second, passing);
  if (!early.result || early.result->message.find("before the test runner") == std::string::npos)
    return Broken("the result does not say that the tests did not finish");
  return Held("not one of them passed");
}

const Registration kRow(Row{
    .id = "J01",
    .title = "ending with success before the tests have run",
    .severity = Severity::kIntegrity,
    .walls = {"proof of completion"},
    .judge = JudgeEndings,
});

}  // namespace

}  // namespace caisson::escape
