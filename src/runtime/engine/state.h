// What a container leaves on this machine while it lives: its entry in the engine, and a directory of its own with the
// small files that are shown inside and, until the container has started, the trees of the host that it shows.
//
// Nothing here removes recursively: a tree of the host may be mounted below the directory.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/plan.h"
#include "runtime/engine/api.h"

namespace caisson::runtime::engine {

class State {
 public:
  // Makes the directory. First removes containers and directories of processes that are dead.
  static Result<std::unique_ptr<State>> Make(const Api& api);
  // Removes the container and the directory, and returns when nothing is left.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::string& name() const { return name_; }    // of the container
  const std::string& owner() const { return owner_; }  // for its label

  // A file of the directory with that text. Returns its path.
  Result<std::string> AddFile(std::string_view text);
  // Mounts a judged tree in the directory, with its owner shown as `inside_id`, and returns the path of the mount.
  // Needs root: the tree is mounted by the descriptor that policy judged, so that no path is looked up again.
  Result<std::string> ShowTree(const policy::PlannedMount& planned, const policy::Limits& limits, uid_t inside_id);

  // Starts a process that removes everything if this one is killed. Call it when all files and trees are there, and
  // before the container is created.
  Status StartCleanup();
  // The container has started and has the trees: the host's mount table is as before.
  void HideTrees();
  void RemoveContainer();

 private:
  State(const Api& api, std::string name, std::string owner);
  Result<std::string> MakePlace(bool is_directory);
  Result<std::string> AddOverlay(const std::string& lower, const policy::Limits& limits, uid_t inside_id);

  const Api api_;
  const std::string name_, owner_, directory_;
  // In the order in which they were made; each is a file, a directory, or a place with something mounted on it.
  std::vector<std::string> places_;
  UniqueFd alive_;  // when it closes, by us or by our death, the cleanup process begins
  pid_t cleanup_ = -1;
};

}  // namespace caisson::runtime::engine
