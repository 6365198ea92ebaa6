// Mounts inside other mounts. The place for one has to exist, and making it in a tree that is mounted from the host
// makes it on the host.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

std::string OnlyNew(const PlantedTree& tree, const std::set<std::string>& before) {
  return Difference(before, tree.Names());
}

Judgement JudgeNested(Host& host) {
  const PlantedTree tree(host);
  tree.Directory("there");
  std::ofstream(tree.source + "/file") << "old";
  // The caller could create it.
  if (::mkdir((tree.source + "/control").c_str(), 0755) != 0 || ::rmdir((tree.source + "/control").c_str()) != 0)
    return Vacuous("nothing can be made in the source");
  const auto before = tree.Names();
  size_t refused = 0, made = 0;
  const auto run = [&](const std::vector<std::string>& flags, const std::string& command) {
    return host.Run({.command = {"sh", "-c", command}, .flags = flags, .with_probe = false});
  };
  for (const char* outer : {"ro", "rw", "cow"}) {
    // The workspace, and another mount.
    for (const std::string& top : {std::string("/workspace"), std::string("/data")}) {
      for (const MountKind& kind : kMountKinds) {
        const std::string source = kind.directory ? tree.directory : tree.file;
        const std::vector<std::string> below = {"-v", tree.source + ":" + top + ":" + outer};
        for (const char* name : {"/new", "/new/er", "/there/new"}) {
          std::vector<std::string> flags = below;
          flags.insert(flags.end(), {"-v", source + ":" + top + name + ":" + kind.access});
          const Outcome outcome = run(flags, "cat " + top + name + (kind.directory ? "/mark" : "") + "; ls " + top);
          const std::string what = flags[1] + " " + flags[3];
          if (const std::string changed = OnlyNew(tree, before); !changed.empty())
            return Broken(what + " changed the host:" + changed);
          if (std::string(outer) == "cow") {
            ++made;
            if (outcome.process.exit_code != 0 || outcome.process.out.find("MARK") == std::string::npos)
              return Broken(what + " does not work: " + outcome.process.err);
          } else {
            ++refused;
            if (outcome.process.exit_code != 125 || outcome.process.err.find("target") == std::string::npos)
              return Broken(what + " was not refused: " + outcome.process.err);
          }
        }
        // Existing places are mounted on, in any order of the requests.
        const std::string name = kind.directory ? "/there" : "/file";
        const Outcome outcome = run({"-v", source + ":" + top + name + ":" + kind.access, below[0], below[1]},
                                    "cat " + top + name + (kind.directory ? "/mark" : ""));
        if (outcome.process.exit_code != 0 || outcome.process.out.find("MARK") == std::string::npos)
          return Broken(source + " on " + top + name + " in " + outer + ": " + outcome.process.err);
        if (const std::string changed = OnlyNew(tree, before); !changed.empty())
          return Broken("mounting on what exists changed the host:" + changed);
      }
    }
  }
  return Held(std::to_string(refused) + " refused, " + std::to_string(made) + " made in the layer above");
}

const Registration kRow(Row{
    .id = "H15",
    .title = "mount points inside trees that are mounted from the host",
    .severity = Severity::kEscape,
    .walls = {"mount points are made only in trees of the sandbox's own"},
    .judge = JudgeNested,
});

}  // namespace

}  // namespace caisson::escape
