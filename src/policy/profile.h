// An isolation profile: everything about a sandbox that is not the request's to choose.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/limits.h"

namespace caisson::policy {

enum class OnViolation { kFail, kReport };

struct Profile {
  std::string name;
  std::string seccomp;  // name of a compiled filter
  Limits limits;
  OnViolation on_violation = OnViolation::kFail;
  bool proc_pids_only = false;
  std::vector<std::string> etc_paths;  // host files shown read-only, where they exist
  std::vector<std::string> masked_proc_files;
  std::vector<std::string> masked_proc_directories;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> ignored_writes;  // path components whose refused writes are not counted
  std::vector<std::string> allow_degraded;  // walls it accepts losing: "cgroup", "landlock"

  bool Allows(std::string_view degraded_wall) const;
};

// nullptr when there is none of that name.
const Profile* FindProfile(std::string_view name);
std::vector<std::string> ProfileNames();

}  // namespace caisson::policy
