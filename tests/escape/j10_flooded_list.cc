// Fills the list of violations with harmless ones, so that later ones are not listed.
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr char kReport[] = "version: 1\nname: report\nextends: balanced\non_violation: report\n";

// The number of writes is the first argument.
constexpr char kFlood[] = R"(
import ctypes, socket, sys
for i in range(int(sys.argv[1])):
    try: open('/usr/planted-%d' % i, 'w')
    except OSError: pass
try: socket.create_connection(('192.0.2.1', 80), 1)
except OSError: pass
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
)";

std::string FaultAfter(Host& host, const std::string& profile, int writes) {
  const Outcome run =
      host.Run({.command = {"python3", "-I", "-c", kFlood, std::to_string(writes)}, .flags = {"--profile", profile}});
  if (!run.result) return "no result: " + run.process.err;
  std::map<std::string, int64_t> counts;
  const json document = json::parse(run.result->text);
  for (const json& one : document["violations"]) counts[one["class"]] += one.value("count", int64_t{1});
  if (counts["NetworkAccessViolation"] != 1) return "the connection is not listed";
  if (counts["SyscallViolation"] != 1) return "ptrace is not listed";
  if (counts["FilesystemWriteViolation"] != writes)
    return "of " + std::to_string(writes) + " writes it counts " + std::to_string(counts["FilesystemWriteViolation"]);
  if (document["violations"].size() > 128) return "the list grows with the attempts";
  return "";
}

Judgement JudgeFlood(Host& host) {
  const std::string profile = host.WriteFile("report.yaml", kReport);
  if (const std::string fault = FaultAfter(host, profile, 0); !fault.empty())
    return Vacuous("without a flood too: " + fault);
  for (const int writes : {63, 64, 65, 2000}) {
    if (const std::string fault = FaultAfter(host, profile, writes); !fault.empty())
      return Broken("after " + std::to_string(writes) + " writes: " + fault);
  }
  return Held("every class is listed, and every attempt counted");
}

const Registration kRow(Row{
    .id = "J10",
    .title = "many refused writes hide a later connection and ptrace",
    .severity = Severity::kIntegrity,
    .walls = {"first of every kind of violation"},
    .judge = JudgeFlood,
});

}  // namespace

}  // namespace caisson::escape
