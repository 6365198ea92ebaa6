// Where on the host a tree lies that is shown: the kernel writes it into mountinfo for every mount of a directory. A
// tree that is shown copy-on-write, or copied, must not reveal it.
#include <nlohmann/json.hpp>
#include <string>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

const char kLook[] = "cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats /proc/1/mountinfo";

Judgement JudgeSources(Host& host) {
  const PlantedTree tree(host);
  std::ofstream(tree.source + "/file") << "x";
  // The directory's name is enough: what lies above it is not in the file where /tmp is a file system.
  const auto name = [](const std::string& path) { return path.substr(path.rfind('/', path.rfind('/') - 1)); };
  const auto look = [&](const std::vector<std::string>& flags) {
    return host.Run({.command = {"sh", "-c", kLook}, .flags = flags, .with_probe = false}).process.out;
  };
  // A plain mount is known to reveal it (docs/design/threat-model.md), and proves that the search works.
  if (look({"--workspace", tree.source + ":ro"}).find(name(tree.source)) == std::string::npos)
    return Vacuous("a plain mount does not tell either");
  const std::string out = look({"--workspace", tree.source + ":cow", "-v", tree.directory + ":/data:cow"});
  if (out.find(" /workspace ") == std::string::npos || out.find(" /data ") == std::string::npos)
    return Broken("the mounts are not there: " + out);
  for (const std::string& path : {tree.source, tree.directory}) {
    if (out.find(name(path)) != std::string::npos) return Broken("copy-on-write shows " + path);
  }
  const Outcome copied = host.Verify(json{{"source", {{"path", tree.source}}},
                                          {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"sh", "-c", kLook}}}}}}
                                         .dump());
  if (!copied.result || copied.result->stdout_text.find(" /workspace ") == std::string::npos)
    return Broken("verify: " + copied.process.err + copied.process.out);
  if (copied.result->stdout_text.find(name(tree.source)) != std::string::npos) return Broken("a copied source shows");
  return Held("neither copy-on-write trees nor copies tell where they come from");
}

const Registration kRow(Row{
    .id = "C16",
    .title = "the host's paths of mounted trees in mountinfo",
    .severity = Severity::kHostLeak,
    .walls = {"the lower layer of an overlay is detached"},
    .judge = JudgeSources,
});

}  // namespace

}  // namespace caisson::escape
