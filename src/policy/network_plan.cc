#include "policy/network_plan.h"

#include <algorithm>

#include "base/words.h"
#include "network/name.h"
#include "policy/destinations.h"
#include "policy/syntax.h"

namespace caisson::policy {

namespace {

using network::Rule;

// Whether `wide` allows all that `narrow` does.
bool Includes(const Rule& wide, const Rule& narrow) {
  if (wide.port != narrow.port || wide.protocol != narrow.protocol) return false;
  if (!narrow.is_wildcard()) return wide.Matches(narrow.host);
  if (!wide.is_wildcard() || !network::IsAtOrBelow(narrow.host.name, wide.host.name)) return false;
  return narrow.host.name != wide.host.name || narrow.match == wide.match || wide.match == Rule::Match::kAtOrBelow;
}

}  // namespace

Result<NetworkPlan> MakeNetworkPlan(const NetworkRules& rules) {
  NetworkPlan plan;
  if (const Fault fault = FaultInPool(rules.pool)) return Error::Invalid("pool: " + Quoted(rules.pool) + " " + *fault);
  const Result<network::AddressRange> pool = network::AddressRange::Parse(rules.pool);
  plan.pool = pool->prefix.ipv4();
  plan.pool_bits = static_cast<uint8_t>(pool->bits - 96);
  plan.allow = ExpandDestinations(rules.allow);
  for (const std::string& entry : rules.deny) plan.deny.push_back({entry, ""});
  CAISSON_TRY(plan.rules, network::RuleSet::Make(plan.allow, plan.deny));
  for (const Rule& rule : plan.rules.allow()) {
    if (rule.match != Rule::Match::kAddress || !rule.host.address->is_ipv4()) continue;
    const uint32_t address = rule.host.address->ipv4();
    // A listener binds the address itself, so the address must not be one that every sandbox already has.
    if (address >> 24 == 0 || address >> 24 == 127 || address >> 24 >= 224)
      return Error::Invalid(rule.label + ": that address means something else in a sandbox; use a name and hosts");
    plan.addresses.push_back(address);
  }
  std::sort(plan.addresses.begin(), plan.addresses.end());
  plan.addresses.erase(std::unique(plan.addresses.begin(), plan.addresses.end()), plan.addresses.end());
  return plan;
}

bool Covers(const NetworkRules& rules, const std::string& entry) {
  const Result<NetworkPlan> plan = MakeNetworkPlan(rules);
  if (!plan) return false;
  const std::vector<network::RuleText> asked = ExpandDestinations({entry});
  return !asked.empty() && std::all_of(asked.begin(), asked.end(), [&](const network::RuleText& text) {
    const Result<Rule> narrow = network::ParseAllowRule(text.text);
    return narrow && std::any_of(plan->rules.allow().begin(), plan->rules.allow().end(),
                                 [&](const Rule& wide) { return Includes(wide, *narrow); });
  });
}

}  // namespace caisson::policy
