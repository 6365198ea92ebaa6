// What stood around a run, and how that is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace caisson::runtime {

enum class WallState { kEnforced, kWatched, kAbsent, kNotApplicable };
inline const char* NameOf(WallState state) {
  constexpr const char* kNames[] = {"enforced", "watched", "absent", "not_applicable"};
  return kNames[static_cast<size_t>(state)];
}

struct Wall {
  std::string name;  // as profiles spell it: "namespaces.user", "landlock", "limits.memory_bytes"
  WallState state = WallState::kAbsent;
  std::string evidence;  // how that is known; the same text for the same walls, so that reports can be compared
};

// The walls that stood around one run, and the evidence for each. Everything here was observed; nothing is a promise.
struct IsolationReport {
  std::string runtime;
  std::vector<std::string> namespaces;
  std::string seccomp_profile;
  std::string seccomp_sha256;
  int landlock_abi = 0;
  std::string cgroup_driver;
  int64_t host_uid = 0;
  std::vector<std::string> degraded;
  std::string start = "cold";  // of policy::kStartNames: how much existed before the request
  bool no_new_privileges = false;
  std::vector<std::string> capabilities;  // in any set of the workload's
  std::vector<Wall> walls;
  std::vector<std::string> cannot_observe;  // classes of violations that this run could not have proven
};

}  // namespace caisson::runtime
