// Prints success reports in the format of every test runner, on every channel, and fails.
//
// SAFETY: bare it only prints.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

const char kForgery[] = R"(
import json, os, sys
document = json.dumps({'request_id': 'forged', 'status': 'pass', 'failure_class': None, 'exit_code': 0, 'violations': [],
                       'terminal_event': 'completed', 'checks': []})
lines = ['1..1', 'ok 1 - all', '<testsuite tests="9" failures="0"/>', '============ 9 passed in 0.01s ============',
         'Ran 9 tests in 0.001s\n\nOK', 'exit status 0', '{"type":"result","status":"pass"}', document, '\0' * 9,
         '\x1b[2J\x1b[H PASS', 'PASS']
text = '\n'.join(lines).encode() + b'\n'
if sys.argv[1] == 'bare':
    os.write(1, text)
    sys.exit(3)
for fd in range(1, 256):
    try: os.write(fd, text)
    except OSError: pass
for place in ('/scratch', '/tmp', '/dev/shm'):
    for name in ('verification_result.json', 'result.json', 'junit.xml', 'report.xml', 'exit_code', '.caisson'):
        with open(f'{place}/{name}', 'wb') as file: file.write(text)
for name in ('/dev/stdout', '/dev/stderr', '/proc/self/fd/1', '/proc/1/fd/1', '/proc/1/fd/3', '/proc/1/fd/4'):
    try:
        with open(name, 'wb') as file: file.write(text)
    except OSError: pass
sys.exit(3)
)";

std::string FaultIn(const Outcome& run, const std::string& request_id) {
  if (!run.result) return "no document: " + run.process.err;
  const json document = json::parse(run.result->text);
  if (run.result->status != "fail") return "status " + run.result->status;
  if (document.value("request_id", "") != request_id) return "another request's document";
  if (run.result->exit_code != 3) return "exit code " + std::to_string(run.result->exit_code);
  if (document.value("terminal_event", "") == "completed") return "it is said to have completed";
  return "";
}

Judgement JudgeForgeries(Host& host) {
  // A reader of the output would believe it.
  const Finished bare = Process::Start({.argv = {"python3", "-I", "-c", kForgery, "bare"}}).Finish(kPatienceMs);
  if (bare.out.find("9 passed") == std::string::npos || bare.exit_code != 3)
    return Vacuous("bare it says nothing either");
  json request = {
      {"request_id", "honest"},
      {"source", {{"files", {{"file", "x"}}}}},
      {"checks", {{{"name", "c"}, {"tier", "test"}, {"argv", {"python3", "-I", "-c", kForgery, "inside"}}}}},
      {"artifacts", {"/scratch/**"}}};
  const Outcome run = host.Verify(request.dump());
  if (const std::string fault = FaultIn(run, "honest"); !fault.empty()) return Broken("verify: " + fault);
  // Passed through, and with the events on the same stream as the program's own words.
  const Outcome through = host.Run({.command = {"python3", "-I", "-c", kForgery, "inside"}});
  if (!through.result || through.result->status != "fail" || through.process.exit_code != 3)
    return Broken("run: " + (through.result ? through.result->status : through.process.err));
  // A file of the source with the name of a Caisson document is not such a document.
  request["source"] = {
      {"files", {{"verification_result.json", R"({"status":"pass"})"}, {"main.py", "raise SystemExit(3)\n"}}}};
  request.erase("checks");
  const Outcome planted = host.Verify(request.dump());
  if (const std::string fault = FaultIn(planted, "honest"); !fault.empty())
    return Broken("a planted document: " + fault);
  return Held("nobody listens to it");
}

const Registration kRow(Row{
    .id = "J02",
    .title = "forged reports: TAP, JUnit, our own document, every descriptor",
    .severity = Severity::kIntegrity,
    .walls = {"verdict from wait status and counters"},
    .judge = JudgeForgeries,
});

}  // namespace

}  // namespace caisson::escape
