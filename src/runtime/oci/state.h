// What a container leaves on the host while it lives: a directory of its own below /run/caisson-RUNTIME, named after
// its slot, with the bundle and the state of the container program. The holder of a slot owns everything named after
// it, so leftovers of a killed run can be removed without asking.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/slot.h"

namespace caisson::runtime::oci {

class State {
 public:
  // Takes a slot and makes the directory. Removes what killed runs left in it and, as far as found, in others.
  // `program` is the container program with its global options; all containers of `runtime` are its.
  static Result<std::unique_ptr<State>> Make(const std::string& runtime, const std::vector<std::string>& program);
  // Removes the container and the directory.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::string& directory() const { return directory_; }
  std::string id() const { return "caisson-" + std::to_string(slot_.number()); }
  uid_t first_host_id() const { return slot_.first_host_id(); }
  // The program, its options and where it keeps its state; commands follow.
  std::vector<std::string> Invocation() const;
  // The program's own words about its last failure; may be empty.
  std::string ReadLog() const;

  // Kills and removes the container and everything in the directory.
  void RemoveContainer();

 private:
  State(sandbox::Slot slot, std::string base, std::vector<std::string> program);
  Status StartCleanup();

  sandbox::Slot slot_;
  const std::string base_;
  std::vector<std::string> program_;
  std::string directory_;
  UniqueFd alive_;  // when it closes, by us or by our death, the cleanup process begins
  pid_t cleanup_ = -1;
};

}  // namespace caisson::runtime::oci
