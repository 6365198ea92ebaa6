// The keeper: a process that outlives a killed supervisor just long enough to remove what the kernel does not remove by
// itself, the cgroups. Everything else of a sandbox (processes, mounts, namespaces) goes with PID 1, which goes with the
// supervisor.
//
// While the supervisor lives the keeper waits on a pipe. It holds the slot, so nobody can take the slot's name before the
// slot's groups are gone.
#pragma once

#include <sys/types.h>

#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/limit_group.h"
#include "sandbox/slot.h"

namespace caisson::sandbox {

class Keeper {
 public:
  static Result<Keeper> Start(const CgroupHost& host, const Slot& slot);

  Keeper() = default;
  Keeper(Keeper&& other) noexcept : pid_(std::exchange(other.pid_, -1)), alive_(std::move(other.alive_)) {}
  Keeper& operator=(Keeper&& other) noexcept {
    Dismiss();
    pid_ = std::exchange(other.pid_, -1);
    alive_ = std::move(other.alive_);
    return *this;
  }
  ~Keeper() { Dismiss(); }

 private:
  Keeper(pid_t pid, UniqueFd alive) : pid_(pid), alive_(std::move(alive)) {}
  // The supervisor has cleaned up itself.
  void Dismiss();

  pid_t pid_ = -1;
  UniqueFd alive_;  // its closing, by us or by our death, is the signal
};

}  // namespace caisson::sandbox
