// The cleanup process: outlives a killed supervisor just long enough to remove the sandbox's cgroups, which the kernel
// does not remove by itself. Everything else of a sandbox (processes, mounts, namespaces) goes with PID 1, which goes
// with the supervisor.
//
// While the supervisor lives, the cleanup process waits on a pipe. It holds the slot, so no other sandbox can take the
// slot's name before the slot's groups are gone. It shares the supervisor's memory, which makes it ten times cheaper to
// start than a fork; therefore it writes nothing there and makes only raw system calls.
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/limit_group.h"
#include "sandbox/slot.h"

namespace caisson::sandbox {

class CleanupProcess {
 public:
  static Result<std::unique_ptr<CleanupProcess>> Start(const CgroupHost& host, const Slot& slot);
  // The supervisor has removed the cgroups itself; ends the cleanup process.
  ~CleanupProcess();
  CleanupProcess(const CleanupProcess&) = delete;
  CleanupProcess& operator=(const CleanupProcess&) = delete;

 private:
  static constexpr int kMaxGroups = 4;
  static constexpr size_t kStackBytes = 16384;
  struct Orders {  // read by the cleanup process; not changed once it runs
    int alive_fd = -1;
    int slot_fd = -1;
    int groups = 0;
    char paths[kMaxGroups][256] = {};
    char kill_path[280] = {};
  };
  CleanupProcess() = default;
  static int Keep(void* orders);

  Orders orders_;
  UniqueFd alive_;  // when it closes, by us or by our death, the cleanup begins
  pid_t pid_ = -1;
  alignas(16) char stack_[kStackBytes];
};

}  // namespace caisson::sandbox
