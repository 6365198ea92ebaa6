// Artifacts that are links: a collector that follows one reads a host file for the workload.
#include <dirent.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

const char kProgram[] = R"(
import os, sys
target = sys.argv[1]
os.mkdir('/scratch/out')
os.chdir('/scratch/out')
os.symlink(target, 'absolute')
os.symlink('../' * 20 + target.lstrip('/'), 'relative')
os.symlink('absolute', 'chain')
os.symlink('/proc/self/fd/0', 'magic')
os.symlink('/proc/self/environ', 'environment')
os.symlink('/proc/1/root' + target, 'root')
os.symlink('/etc/shadow', 'shadow')
os.symlink('nowhere', 'dangling')
open('good', 'w').write('good')
)";

Judgement JudgeLinks(Host& host) {
  const std::string secret = "nobody inside may see this", target = host.WriteFile("secret", secret);
  const std::string naive = host.MakeDirectory() + "/absolute";
  if (::symlink(target.c_str(), naive.c_str()) != 0 || ReadText(naive).find(secret) == std::string::npos)
    return Vacuous("even a careless reader does not get the file");
  const json request = {
      {"source", {{"files", {{"file", "x"}}}}},
      {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "-c", kProgram, target}}}}},
      {"artifacts", {"/scratch/**", "/scratch/out/absolute", "/scratch/out/*"}}};
  const std::string stored = host.MakeDirectory() + "/stored";
  const Outcome run = host.Verify(request.dump(), {"--artifacts", stored});
  if (!run.result || run.result->status != "pass")
    return Broken("the run failed: " + run.process.err + run.process.out);
  const json document = json::parse(run.result->text);
  const json& artifacts = document["artifacts"];
  if (artifacts.size() != 1 || artifacts[0]["path"] != "/scratch/out/good")
    return Broken("collected: " + artifacts.dump());
  for (const auto& file : std::filesystem::directory_iterator(stored)) {
    if (ReadText(file.path()).find(secret) != std::string::npos) return Broken("the host's file was stored");
  }
  const std::string skipped = document["skipped_artifacts"].dump();
  for (const char* name : {"absolute", "relative", "chain", "magic", "environment", "root", "shadow", "dangling"}) {
    if (skipped.find(std::string("/scratch/out/") + name + ": a symbolic link") == std::string::npos)
      return Broken(std::string(name) + " is not named as left out: " + skipped);
  }
  return Held("no link was followed");
}

const Registration kRow(Row{
    .id = "H02",
    .title = "artifacts that are links: absolute, relative, chains, magic",
    .severity = Severity::kHostLeak,
    .walls = {"collector"},
    .judge = JudgeLinks,
});

}  // namespace

}  // namespace caisson::escape
