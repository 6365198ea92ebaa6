// The counters of the cgroup that a process is in, read from outside, on v1, hybrid and v2 hosts. Another program made
// the group; its directories stay readable here until that program removes them.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/limit_group.h"

namespace caisson::runtime::witnessed {

class CgroupCounters {
 public:
  // The groups of process `pid`. An error when a limit that a container must have is not in its group.
  static Result<CgroupCounters> Of(pid_t pid);

  const std::string& driver() const { return driver_; }
  Result<sandbox::GroupCounters> Read() const;
  bool RestartMemoryPeak() const;

  // The limits as the kernel has them, -1 for none: what a container program was asked for and what it did differ.
  int64_t ReadMemoryLimit() const;
  int64_t ReadProcessLimit() const;
  bool HasCpuLimit() const;

 private:
  bool v2_ = false;
  std::string driver_;
  UniqueFd memory_, pids_, cpu_, cpuacct_;
};

}  // namespace caisson::runtime::witnessed
