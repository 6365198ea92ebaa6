// Artifacts below /workspace where the source has links, and where other trees are mounted. The collector reads them
// from outside, where the links lead to the host.
#include <nlohmann/json.hpp>
#include <string>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

Judgement JudgeArtifacts(Host& host) {
  const PlantedTree tree(host);
  const std::string secret = "nobody inside may see this";
  std::ofstream(tree.outside + "/secret") << secret;
  std::ofstream(tree.source + "/good") << "good";
  std::ofstream(tree.source + "/hard") << "x";
  ::mkfifo((tree.source + "/fifo").c_str(), 0666);
  tree.Directory("deep");
  tree.Link("out", tree.outside);
  tree.Link("deep/out", tree.outside);
  tree.Link("file", tree.outside + "/secret");
  tree.Link("root", "/proc/self/root");
  tree.Link("cwd", "/proc/self/cwd");
  if (ReadText(tree.source + "/out/secret") != secret || ReadText(tree.source + "/file") != secret)
    return Vacuous("even a careless reader does not get the file");
  const auto before = tree.Names();
  const std::string stored = host.MakeDirectory() + "/stored";
  // `session` has the source copy-on-write, so that it is collected from at all.
  const Outcome run = host.Verify(
      json{{"source", {{"path", tree.source}}},
           {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"sh", "-c", "echo made > /workspace/made"}}}}},
           {"artifacts",
            {"/workspace/good", "/workspace/made", "/workspace/file", "/workspace/out/secret", "/workspace/out/*",
             "/workspace/deep/out/secret", "/workspace/root" + tree.outside + "/secret", "/workspace/cwd/secret",
             "/workspace/fifo", "/workspace/**/secret"}}}
          .dump(),
      {"--profile", "session", "--artifacts", stored});
  if (!run.result || run.result->status != "pass")
    return Broken("the run failed: " + run.process.err + run.process.out);
  size_t made = 0;
  const json document = json::parse(run.result->text);
  for (const json& artifact : document["artifacts"]) {
    const std::string path = artifact["path"];
    if (path == "/workspace/made") ++made;
    if (path != "/workspace/made" && path != "/workspace/good") return Broken("collected " + path);
  }
  if (made != 1) return Broken("what the check made was not collected");
  for (const auto& entry : std::filesystem::directory_iterator(stored)) {
    if (ReadText(entry.path()).find(secret) != std::string::npos) return Broken("the host's file was stored");
  }
  if (const std::string changed = Difference(before, tree.Names()); !changed.empty())
    return Broken("the host was changed:" + changed);
  return Held("no link was followed");
}

const Registration kRow(Row{
    .id = "H18",
    .title = "artifacts of the workspace through links of the source",
    .severity = Severity::kHostLeak,
    .walls = {"collector"},
    .judge = JudgeArtifacts,
});

}  // namespace

}  // namespace caisson::escape
