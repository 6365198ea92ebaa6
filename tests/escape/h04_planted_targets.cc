// Plants links where Caisson will write next. A directory that a workload may write to is named by an operator in the
// next run as the place for results (CVE-2024-28185 was such a case).
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

const char kPlant[] = R"(
import os, sys
outside = sys.argv[1]
os.symlink(outside + '/result', 'result.json')
os.symlink(outside + '/events', 'events.jsonl')
os.symlink(outside, 'artifacts')
)";

// Between the checks of one request: files that a runner might keep in places that a check can write to.
const char kPlantInside[] = R"(
import os, sys
for place in ('/scratch', '/tmp'):
    for name in ('stdin', 'stdout', 'stderr', 'result.json', 'script.py', 'run.sh', 'meta', 'c2', 'verification_result.json'):
        os.symlink(sys.argv[1] + '/' + name, place + '/' + name)
)";

bool IsEmptyDirectory(const std::string& path) {
  return ::rmdir(path.c_str()) == 0 && ::mkdir(path.c_str(), 0777) == 0;
}

Judgement JudgeChecks(Host& host, const std::string& outside) {
  const json request = {{"source", {{"files", {{"file", "x"}}}}},
                        {"checks",
                         {{{"name", "c1"}, {"tier", "run"}, {"argv", {"python3", "-I", "-c", kPlantInside, outside}}},
                          {{"name", "c2"}, {"tier", "run"}, {"argv", {"cat"}}, {"stdin", "from the request"}}}}};
  const Outcome run = host.Verify(request.dump());
  if (!run.result || run.result->status != "pass") return Broken("two checks: " + run.process.err + run.process.out);
  if (run.result->stdout_text.find("from the request") == std::string::npos)
    return Broken("the second check lost its input");
  return IsEmptyDirectory(outside) ? Held("nothing was written through a link") : Broken("a file appeared outside");
}

Judgement JudgePlanted(Host& host) {
  const std::string workspace = host.MakeDirectory(), outside = host.MakeDirectory();
  ::chmod(workspace.c_str(), 0777);
  ::chmod(outside.c_str(), 0777);
  const Outcome plant = host.Run({.command = {"python3", "-I", "-c", kPlant, outside},
                                  .flags = {"--workspace", workspace + ":rw"},
                                  .with_probe = false});
  struct stat info {};
  if (::lstat((workspace + "/result.json").c_str(), &info) != 0)
    return Vacuous("a workload cannot plant links here: " + plant.process.err);
  std::ofstream(workspace + "/result.json") << "careless";
  if (IsEmptyDirectory(outside)) return Vacuous("even a careless writer writes nothing");
  ::unlink((outside + "/result").c_str());

  const std::string request = json{
      {"source", {{"files", {{"main.py", "open('/scratch/a', 'w').write('a')"}}}}},
      {"artifacts",
       {"/scratch/a"}}}.dump();
  for (const auto& [flag, name] : {std::pair{"--result", "/result.json"}, std::pair{"--events", "/events.jsonl"},
                                   std::pair{"--artifacts", "/artifacts"}}) {
    host.Verify(request, {flag, workspace + name});
    if (!IsEmptyDirectory(outside)) return Broken(std::string(flag) + " wrote through a planted link");
  }
  Command run;
  run.argv = {
      host.caisson(), "run", "--quiet", "--result", workspace + "/result.json", "--events", workspace + "/events.jsonl",
      "--",           "true"};
  Process::Start(run).Finish(kPatienceMs);
  if (!IsEmptyDirectory(outside)) return Broken("run wrote through a planted link");
  return JudgeChecks(host, outside);
}

const Registration kRow(Row{
    .id = "H04",
    .title = "links planted where results, events and artifacts go next",
    .severity = Severity::kEscape,
    .walls = {"results are never written through a link"},
    .judge = JudgePlanted,
});

}  // namespace

}  // namespace caisson::escape
