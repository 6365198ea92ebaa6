// The description that a runtime gives of itself, and the choice between several runtimes. Policy judges only these
// descriptions and never calls a runtime; runtime/runtime.h is the interface that provides them.
#pragma once

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "policy/limits.h"
#include "policy/losses.h"
#include "policy/profile.h"

namespace caisson::policy {

// Every possible runtime, by the name that flags and results use. Each program decides which of them it has.
inline constexpr std::array<const char*, 6> kRuntimeNames = {"native", "container", "oci",
                                                             "gvisor", "microvm",   "kubernetes"};

enum class Ability {
  kObservesWrites,
  kObservesNetwork,
  kObservesSystemCalls,
  kWarmStarts,
  kSessions,
  kEgress,
  kImages,
};
inline constexpr std::array<const char*, 7> kAbilityNames = {
    "observe_writes", "observe_network", "observe_system_calls", "warm_starts", "sessions", "egress", "images"};
inline const char* NameOf(Ability ability) { return kAbilityNames[static_cast<size_t>(ability)]; }
// Without these abilities a class of violations cannot be proven. A profile that accepts that lists them in
// allow_degraded.
inline constexpr std::array<Ability, 3> kObservations = {Ability::kObservesWrites, Ability::kObservesNetwork,
                                                         Ability::kObservesSystemCalls};

// kEnforced: the limit holds at every moment. kWatched: the runtime samples the usage and ends a workload above the
// limit.
enum class LimitSupport { kLacks, kWatched, kEnforced };
inline constexpr std::array<const char*, 3> kLimitSupportNames = {"lacks", "watched", "enforced"};

struct RuntimeDescription {
  std::string name;  // of kRuntimeNames
  Strength strength = Strength::kNative;
  std::set<Ability> abilities;
  // By kLimitFields, on a host that has everything the runtime can use. IsolationReport says what one run really got.
  std::array<LimitSupport, kLimitFields.size()> limits = {};
  std::vector<std::string>
      needed_walls;  // it runs no profile that gives up one of these; "capabilities" means all below

  bool Can(Ability ability) const { return abilities.count(ability) > 0; }
  bool NeedsWall(std::string_view wall) const;
  // The classes of violations that it cannot prove.
  std::vector<std::string> CannotObserve() const;
};

struct NeededAbility {
  Ability ability = Ability::kEgress;
  std::string by;  // the origin of the need, for the refusal
};

// Why a runtime cannot run something under the profile; empty: it can. Says nothing about strength.
std::string FindObstacle(const RuntimeDescription& runtime, const Profile& profile, const Limits& limits,
                         const std::vector<NeededAbility>& needs);

}  // namespace caisson::policy
