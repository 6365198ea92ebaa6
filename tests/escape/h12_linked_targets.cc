// Mounts whose target leads through a link that came with the source. Creating the mount point by its path would create
// it at the link's target, which is on the host while the sandbox is being set up.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

Judgement JudgeLinks(Host& host) {
  const PlantedTree tree(host);
  tree.Directory("deep");
  tree.Link("out", tree.outside);
  tree.Link("deep/out", tree.outside);
  tree.Link("chain", "deep/out");
  tree.Link("ghost", tree.outside + "/ghost");
  tree.Link("inner", "deep");
  tree.Link("up", "../../../../../../../..");
  tree.Link("root", "/proc/self/root");
  tree.Link("init", "/proc/1/root");
  tree.Link("cwd", "/proc/self/cwd");
  tree.Link("thread", "/proc/thread-self/root");
  std::vector<std::string> targets = {"/out/new",
                                      "/out",
                                      "/out/a/b/c",
                                      "/deep/out/new",
                                      "/chain/new",
                                      "/ghost",
                                      "/inner/new",
                                      "/cwd/new",
                                      "/up" + tree.outside + "/new",
                                      "/root" + tree.outside + "/new",
                                      "/init" + tree.outside + "/new",
                                      "/thread" + tree.outside + "/new"};
  const size_t links = targets.size();
  for (int fd = 3; fd <= 20; ++fd) {
    const std::string name = "fd" + std::to_string(fd);
    tree.Link(name, "/proc/self/fd/" + std::to_string(fd));
    targets.push_back("/" + name + "/new");
  }

  // Code that follows links creates it outside.
  for (const char* link : {"/out/control", "/deep/out/control", "/chain/control", "/ghost"}) {
    if (::mkdir((tree.source + link).c_str(), 0755) != 0 && std::string(link) != "/ghost")
      return Vacuous(std::string("nothing can be made through ") + link);
    ::rmdir((tree.outside + "/control").c_str());
  }
  const auto before = tree.Names();
  size_t tried = 0;
  const auto run = [&](const std::string& target, const MountKind& kind, const char* workspace) -> std::string {
    ++tried;
    const std::string what = (kind.directory ? tree.directory : tree.file) + ":/workspace" + target + ":" + kind.access;
    const Outcome outcome = host.Run({.command = {"sh", "-c", "echo RAN"},
                                      .flags = {"--workspace", tree.source + ":" + workspace, "-v", what},
                                      .with_probe = false});
    const std::string name = what + " in a workspace that is " + workspace;
    if (const std::string changed = Difference(before, tree.Names()); !changed.empty())
      return name + " changed the host:" + changed;
    if (outcome.process.exit_code != 125 || outcome.process.out.find("RAN") != std::string::npos)
      return name + " was not refused: " + std::to_string(outcome.process.exit_code) + " " + outcome.process.err;
    if (outcome.process.err.find("target /workspace" + target) == std::string::npos)
      return name + " was refused without a word about the target: " + outcome.process.err;
    return "";
  };
  for (size_t i = 0; i < targets.size(); ++i) {
    for (const MountKind& kind : kMountKinds) {
      // All workspaces with the plain link, one of them with each of the others.
      for (const char* workspace : {"ro", "cow", "rw"}) {
        if (i > 0 && std::string(workspace) != (i % 3 == 0 ? "ro" : i % 3 == 1 ? "cow" : "rw")) continue;
        if (i >= links && kind.access != "ro") continue;
        if (const std::string fault = run(targets[i], kind, workspace); !fault.empty()) return Broken(fault);
      }
    }
  }
  // A source that is copied in, links and all.
  for (const char* target : {"/out/new", "/deep/out/new", "/ghost", "/inner/new"}) {
    const Outcome outcome =
        host.Verify(json{{"source", {{"path", tree.source}}},
                         {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"true"}}}}},
                         {"mounts", {{{"source", tree.directory}, {"target", std::string("/workspace") + target}}}}}
                        .dump());
    ++tried;
    if (const std::string changed = Difference(before, tree.Names()); !changed.empty())
      return Broken(std::string("verify with ") + target + " changed the host:" + changed);
    if (!outcome.result || outcome.result->status != "rejected")
      return Broken(std::string("verify with ") + target + ": " + outcome.process.out + outcome.process.err);
  }
  return Held(std::to_string(tried) + " mounts refused, nothing made on the host");
}

const Registration kRow(Row{
    .id = "H12",
    .title = "mount targets through links of the source, first, middle and last, and through magic links",
    .severity = Severity::kEscape,
    .walls = {"mount points are opened without following links"},
    .judge = JudgeLinks,
});

}  // namespace

}  // namespace caisson::escape
