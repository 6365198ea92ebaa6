// The keeper: a process that outlives a killed supervisor just long enough to remove what the kernel does not remove by
// itself, the cgroups. Everything else of a sandbox (processes, mounts, namespaces) goes with PID 1, which goes with
// the supervisor.
//
// While the supervisor lives the keeper waits on a pipe. It holds the slot, so nobody can take the slot's name before
// the slot's groups are gone. It shares the supervisor's memory, which makes it ten times cheaper to start than a fork,
// and therefore writes nothing there and calls nothing but the kernel.
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/limit_group.h"
#include "sandbox/slot.h"

namespace caisson::sandbox {

class Keeper {
 public:
  static Result<std::unique_ptr<Keeper>> Start(const CgroupHost& host, const Slot& slot);
  // The supervisor has cleaned up itself.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  static constexpr int kMaxGroups = 4;
  static constexpr size_t kStackBytes = 16384;
  struct Orders {  // read by the keeper; not changed once it runs
    int alive_fd = -1;
    int slot_fd = -1;
    int groups = 0;
    char paths[kMaxGroups][256] = {};
    char kill_path[280] = {};
  };
  Keeper() = default;
  static int Keep(void* orders);

  Orders orders_;
  UniqueFd alive_;  // its closing, by us or by our death, is the signal
  pid_t pid_ = -1;
  alignas(16) char stack_[kStackBytes];
};

}  // namespace caisson::sandbox
