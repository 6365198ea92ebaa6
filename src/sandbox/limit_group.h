// The cgroups of one sandbox, which enforce its limits and hold its counters.
//
// Three drivers behind one class:
//   v2      the unified hierarchy has the controllers
//   hybrid  limits in v1 controllers; a controller-less v2 group for clone-into, kill and CPU time
//   none    no cgroup can be made here: limits are rlimits plus a watching supervisor ("watched")
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

enum class CgroupDriver : uint8_t { kV2, kHybrid, kNone };
const char* DriverName(CgroupDriver driver);

// The cgroups that this machine offers this user.
struct CgroupHost {
  CgroupDriver driver = CgroupDriver::kNone;
  std::string v2_base;     // directory that would hold our group
  std::string v1_mount;    // hybrid: parent of the memory, pids and cpu hierarchies
  std::string why_none;    // none: what is missing and how to get it
  std::string why_no_cpu;  // set when only the CPU limit is unavailable
};
// Enables the controllers that a v2 group needs in its parent; only the attempt shows whether they are available.
CgroupHost ProbeCgroups();

// A counter that this kernel or group does not have is absent.
struct GroupCounters {
  int64_t oom_kills = 0;
  int64_t refused_forks = 0;
  std::optional<int64_t> cpu_ms;
  std::optional<int64_t> throttled_ms;
  std::optional<int64_t> peak_memory_bytes;
  std::optional<int64_t> peak_processes;
};

class LimitGroup {
 public:
  // Makes the group that PID 1 is cloned into. With driver none the object is empty and every operation does nothing.
  static Result<LimitGroup> Create(const CgroupHost& host, int slot);
  // Creates the remaining groups that do not depend on limits, for a group that is prepared before its limits are
  // known.
  Status MakeAll();
  // Creates the remaining groups and sets the limits. Separate from Create, so that it can run while PID 1 builds its
  // mounts.
  // `end_together`: when memory runs out, every process of the group ends, where the kernel can do that (v2).
  Status Apply(const Limits& limits, bool end_together);
  // Kills and removes all groups of that slot, whether a killed run or this process left them.
  static void Reclaim(const CgroupHost& host, int slot);
  // Returns every directory that a group of that slot can have; the group that supports cgroup.kill comes first.
  static std::vector<std::string> Paths(const CgroupHost& host, int slot);
  // Returns the numbers of all slots that have a group.
  static std::vector<int> ListSlots(const CgroupHost& host);

  LimitGroup(LimitGroup&&) = default;
  LimitGroup& operator=(LimitGroup&&) = default;
  ~LimitGroup();

  CgroupDriver driver() const { return host_.driver; }
  int clone_into_fd() const { return v2_dir_.get(); }
  // v1 "tasks" files, by which PID 1 moves itself into the groups.
  std::vector<int> task_fds() const;
  // Readable (epoll EPOLLIN) on v1, exceptional (EPOLLPRI) on v2, when memory ran out; -1 for none.
  int oom_event_fd() const { return oom_event_.get(); }

  // Whether the memory charged to the group and `uncharged` bytes, which the kernel holds for the group without
  // charging them to it, fit into the memory limit together. When they come close to the limit, this function lowers
  // the group's limit by `uncharged`, so that the kernel reclaims what it can; if that is not enough on v2, the kernel
  // then ends the group.
  bool FitsBeside(int64_t uncharged);
  // Memory of TCP and UDP sockets; on v2 it is part of the group's memory, and this returns 0.
  int64_t ReadSocketBytes() const;
  int64_t ReadMemoryBytes() const;

  GroupCounters Read() const;
  int64_t ReadRefusedForks() const;
  std::optional<int64_t> ReadCpuMs() const;
  // Makes peak_memory_bytes count from now on. Returns false when this kernel cannot (v2 before Linux 6.12); the peak
  // then continues to count from the group's creation. The kernel offers no such reset for peak_processes.
  bool RestartMemoryPeak();

 private:
  LimitGroup() = default;
  Status ApplyV2(const Limits& limits, bool end_together);
  Status MakeHybrid();
  Status ApplyHybrid(const Limits& limits);

  CgroupHost host_;
  int slot_ = -1;
  int64_t memory_limit_ = 0, memory_limit_now_ = 0;
  UniqueFd v2_dir_, memory_dir_, pids_dir_, cpu_dir_;
  UniqueFd memory_tasks_, pids_tasks_, cpu_tasks_;
  UniqueFd oom_event_, oom_control_;
  UniqueFd memory_peak_;  // v2: each descriptor of memory.peak has its own peak, once it was written to
};

}  // namespace caisson::sandbox
