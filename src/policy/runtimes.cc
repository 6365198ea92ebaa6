#include "policy/runtimes.h"

#include <algorithm>

#include "base/violation.h"

namespace caisson::policy {

bool RuntimeDescription::NeedsWall(std::string_view wall) const {
  return std::any_of(needed_walls.begin(), needed_walls.end(), [wall](const std::string& needed) {
    return wall == needed || (wall.substr(0, needed.size()) == needed && wall[needed.size()] == '.');
  });
}

std::vector<std::string> RuntimeDescription::CannotObserve() const {
  constexpr ViolationClass kProven[] = {ViolationClass::kFilesystemWrite, ViolationClass::kNetworkAccess,
                                        ViolationClass::kSyscall};  // by kObservations
  std::vector<std::string> classes;
  for (size_t i = 0; i < kObservations.size(); ++i) {
    if (!Can(kObservations[i])) classes.emplace_back(ClassName(kProven[i]));
  }
  return classes;
}

std::string FindObstacle(const RuntimeDescription& runtime, const Profile& profile, const Limits& limits,
                         const std::vector<NeededAbility>& needs) {
  const std::string the_runtime = "the runtime " + runtime.name;
  for (const Loss& loss : FindLosses(profile)) {
    if (runtime.NeedsWall(loss.wall))
      return "profile " + profile.name + ", " + loss.wall + ": " + the_runtime + " does not run without it (" +
             loss.what + ")";
  }
  for (const NeededAbility& need : needs) {
    if (!runtime.Can(need.ability))
      return need.by + ": " + the_runtime + " lacks the ability " + NameOf(need.ability) + "; use one that has it";
  }
  for (const Ability ability : kObservations) {
    if (!runtime.Can(ability) && !profile.Allows(NameOf(ability)))
      return "profile " + profile.name + ": " + the_runtime + " lacks the ability " + NameOf(ability) +
             "; use one that has it, or a profile whose allow_degraded lists " + NameOf(ability);
  }
  for (size_t i = 0; i < kLimitFields.size(); ++i) {
    if (limits.*kLimitFields[i].value == kNoLimit || runtime.limits[i] == LimitSupport::kEnforced) continue;
    const std::string limit = std::string("limits.") + kLimitFields[i].name + ": " + the_runtime;
    if (runtime.limits[i] == LimitSupport::kLacks) return limit + " has no such limit; use one that has it";
    if (!profile.Allows("cgroup"))
      return limit + " only watches it; use one that enforces it, or a profile whose allow_degraded lists cgroup";
  }
  return "";
}

}  // namespace caisson::policy
