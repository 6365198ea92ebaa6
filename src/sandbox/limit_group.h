// The cgroups of one sandbox: where its limits are enforced and its counters read.
//
// Three drivers behind one class:
//   v2      the unified hierarchy has the controllers
//   hybrid  limits in v1 controllers; a controller-less v2 group for clone-into, kill and CPU time
//   none    no cgroup can be made here: limits are rlimits plus a watching supervisor ("watched")
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

enum class CgroupDriver : uint8_t { kV2, kHybrid, kNone };
const char* DriverName(CgroupDriver driver);

// What this machine and user can have.
struct CgroupHost {
  CgroupDriver driver = CgroupDriver::kNone;
  std::string v2_base;     // directory that would hold our group
  std::string v1_mount;    // hybrid: parent of the memory, pids and cpu hierarchies
  std::string why_none;    // none: what is missing and how to get it
  std::string why_no_cpu;  // set when the CPU limit alone cannot be had
};
// Enables the controllers a v2 group needs in its parent, which is how one finds out whether they can be had.
CgroupHost ProbeCgroups();

struct GroupCounters {
  int64_t oom_kills = 0;
  int64_t refused_forks = 0;
  int64_t cpu_ms = 0;
  int64_t throttled_ms = 0;
  int64_t peak_memory_bytes = 0;
  int64_t peak_processes = 0;  // 0 when this kernel does not count it
};

class LimitGroup {
 public:
  // Makes the group that PID 1 is cloned into. With driver none it is empty and every operation does nothing.
  static Result<LimitGroup> Create(const CgroupHost& host, int slot);
  // Makes what of the rest does not depend on the limits; for a group that is made ahead of them.
  Status MakeAll();
  // Makes the rest and sets the limits. Apart, so that it can be done while PID 1 builds its mounts.
  Status Apply(const Limits& limits);
  // Kills and removes whatever groups of that slot exist, as left by a killed run or by our own.
  static void Reclaim(const CgroupHost& host, int slot);
  // Every directory a group of that slot can have; the one that can kill first.
  static std::vector<std::string> Paths(const CgroupHost& host, int slot);
  // Numbers of all slots that have a group.
  static std::vector<int> ListSlots(const CgroupHost& host);

  LimitGroup(LimitGroup&&) = default;
  LimitGroup& operator=(LimitGroup&&) = default;
  ~LimitGroup();

  CgroupDriver driver() const { return host_.driver; }
  int clone_into_fd() const { return v2_dir_.get(); }
  // v1 "tasks" files, for PID 1 to move itself by.
  std::vector<int> task_fds() const;
  // Readable (epoll EPOLLIN) on v1, exceptional (EPOLLPRI) on v2, when memory ran out; -1 for none.
  int oom_event_fd() const { return oom_event_.get(); }

  GroupCounters Read() const;
  int64_t ReadRefusedForks() const;

 private:
  LimitGroup() = default;
  Status ApplyV2(const Limits& limits);
  Status MakeHybrid();
  Status ApplyHybrid(const Limits& limits);

  CgroupHost host_;
  int slot_ = -1;
  UniqueFd v2_dir_, memory_dir_, pids_dir_, cpu_dir_;
  UniqueFd memory_tasks_, pids_tasks_, cpu_tasks_;
  UniqueFd oom_event_, oom_control_;
};

}  // namespace caisson::sandbox
