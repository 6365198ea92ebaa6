// Lists what a profile gives up, measured against the built-in profile it descends from: each wall that is missing or
// lower, and what that wall kept out. `caisson policy check` prints the list, and every result of a run under the
// profile carries it.
#pragma once

#include <string>
#include <vector>

#include "policy/profile.h"

namespace caisson::policy {

struct Loss {
  std::string wall;  // the key and, in lists, the item: "namespaces.ipc", "seccomp.allow.ptrace"
  std::string what;  // what is no longer kept out
};

std::vector<Loss> FindLosses(const Profile& profile, const Profile& base);

// The same against the profile's own root.
std::vector<Loss> FindLosses(const Profile& profile);

}  // namespace caisson::policy
