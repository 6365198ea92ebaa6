// A link not at the end of an artifact's path but on the way to it, and names that make the last component one.
#include <fcntl.h>
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
os.symlink(target, '/scratch/d')
os.mkdir('/scratch/deep')
os.symlink('../d', '/scratch/deep/d')
os.symlink('/', '/scratch/all')
os.symlink('.', '/scratch/self')
open('/scratch/good', 'w').write('good')
)";

Outcome Collect(Host& host, const std::string& target, const json& artifacts, const std::string& stored) {
  const json request = {
      {"source", {{"files", {{"file", "x"}}}}},
      {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "-c", kProgram, target}}}}},
      {"artifacts", artifacts}};
  return host.Verify(request.dump(), {"--artifacts", stored});
}

Judgement JudgePaths(Host& host) {
  const std::string secret = "nobody inside may see this", file = host.WriteFile("secret", secret);
  const std::string directory = file.substr(0, file.rfind('/')), name = file.substr(file.rfind('/') + 1);
  const std::string naive = host.MakeDirectory() + "/d";
  // With a slash behind it even O_NOFOLLOW follows.
  if (::symlink(directory.c_str(), naive.c_str()) != 0) return Vacuous("no link can be made");
  const UniqueFd followed(::open((naive + "/").c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!followed || ReadText(naive + "/" + name).find(secret) == std::string::npos)
    return Vacuous("even a careless reader does not get the file");
  const std::string stored = host.MakeDirectory() + "/stored";
  const Outcome run =
      Collect(host, directory,
              {"/scratch/good", "/scratch/d/", "/scratch/d/" + name, "/scratch/d/*", "/scratch/deep/d/" + name,
               "/scratch/all" + file, "/scratch/self/good", "/scratch/**/" + name},
              stored);
  if (!run.result || run.result->status != "pass")
    return Broken("the run failed: " + run.process.err + run.process.out);
  const json artifacts = json::parse(run.result->text)["artifacts"];
  if (artifacts.size() != 1 || artifacts[0]["path"] != "/scratch/good") return Broken("collected: " + artifacts.dump());
  for (const auto& entry : std::filesystem::directory_iterator(stored)) {
    if (ReadText(entry.path()).find(secret) != std::string::npos) return Broken("the host's file was stored");
  }
  for (const std::string glob : {"/scratch/../etc/passwd", "/scratch/./good", "/scratch//good", "/etc/passwd", "good",
                                 "", "/", "/scratchy/good", "/proc/self/environ"}) {
    // Refused, or not found.
    const Outcome strange = Collect(host, directory, {glob}, stored);
    const bool refused = strange.process.exit_code == 2 || strange.process.exit_code == 3;
    if (!refused && (!strange.result || !json::parse(strange.result->text)["artifacts"].empty()))
      return Broken("'" + glob + "' is an artifact's name");
  }
  return Held("no link was followed; other paths name nothing");
}

const Registration kRow(Row{
    .id = "H03",
    .title = "links on the way to an artifact; slashes, dots, other roots",
    .severity = Severity::kHostLeak,
    .walls = {"collector", "request limits"},
    .judge = JudgePaths,
});

}  // namespace

}  // namespace caisson::escape
