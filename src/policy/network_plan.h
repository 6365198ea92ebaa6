// The meaning of the network part of a profile or of a judged plan: its expanded rules, and the addresses that stand
// for names inside.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/rule.h"
#include "policy/profile.h"

namespace caisson::policy {

struct NetworkPlan {
  uint32_t pool = 0;  // the first address, in host order
  uint8_t pool_bits = 0;
  std::vector<network::RuleText> allow, deny;  // classes of destinations are replaced by their rules
  std::vector<uint32_t> addresses;             // IPv4 addresses that allow rules name
  network::RuleSet rules;
};

// The error names the rule or key at fault.
Result<NetworkPlan> MakeNetworkPlan(const NetworkRules& rules);

// True when `rules` already allow everything that `entry`, an entry of network.allow, would allow.
bool Covers(const NetworkRules& rules, const std::string& entry);

}  // namespace caisson::policy
