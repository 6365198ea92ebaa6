#include "policy/profile.h"

#include <algorithm>

namespace caisson::policy {

bool Profile::Allows(std::string_view degraded_wall) const {
  return std::find(allow_degraded.begin(), allow_degraded.end(), degraded_wall) != allow_degraded.end();
}

const Profile* FindBuiltIn(std::string_view name) {
  for (const Profile& profile : BuiltInProfiles()) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

}  // namespace caisson::policy
