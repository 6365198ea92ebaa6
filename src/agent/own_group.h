// The cgroup that the agent shares with the commands, as the walls outside show it inside. For places whose counters
// cannot be read from outside, such as a pod.
#pragma once

#include <optional>

#include "base/unique_fd.h"
#include "sandbox/limit_group.h"

namespace caisson::agent {

class OwnGroup {
 public:
  // Opened before the first command. Finds nothing where /sys/fs/cgroup is not shown or shows the root of a hierarchy.
  static OwnGroup Open();

  // Absent where the counters of refused memory and refused forks are not both there.
  std::optional<sandbox::GroupCounters> Read() const;
  // The counters since `before`. Peaks stay as they are: the kernel keeps one for all commands.
  std::optional<sandbox::GroupCounters> ReadSince(const std::optional<sandbox::GroupCounters>& before) const;

 private:
  bool v2_ = false;
  UniqueFd memory_, pids_;
};

}  // namespace caisson::agent
