#include "runtime/native/description.h"

namespace caisson::runtime::native {

policy::RuntimeDescription DescribeNative() {
  using policy::Ability;
  policy::RuntimeDescription native;
  native.name = "native";
  native.strength = policy::Strength::kNative;
  native.abilities = {Ability::kObservesWrites, Ability::kObservesNetwork, Ability::kObservesSystemCalls,
                      Ability::kWarmStarts,     Ability::kSessions,        Ability::kEgress,
                      Ability::kImages};
  native.limits.fill(policy::LimitSupport::kEnforced);
  // No second wall protects files, processes, users or the network, the filter is also the observer, and the core's
  // language cannot express a kept capability.
  native.needed_walls = {"namespaces.user", "namespaces.pid",      "namespaces.mount", "namespaces.network",
                         "capabilities",    "seccomp.filter.none", "no_new_privileges"};
  return native;
}

}  // namespace caisson::runtime::native
