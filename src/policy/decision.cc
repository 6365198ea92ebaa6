#include "policy/decision.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/words.h"

namespace caisson::policy {

using nlohmann::ordered_json;

Decision Decide(const DecisionInput& input) {
  Decision decision;
  decision.role = input.role;
  decision.overrides = input.overrides;
  decision.given_tier = input.runtime_tier;
  decision.required_tier = input.profile->tier;
  for (const RiskRule& rule : input.rules->risk) {
    if (!rule.Matches(input.facts)) continue;
    decision.rules.push_back({rule.id, rule.tier, rule.why});
    decision.required_tier = std::max(decision.required_tier, rule.tier);
    if (rule.approval.empty()) continue;
    const bool named =
        std::find(input.approved_rules.begin(), input.approved_rules.end(), rule.id) != input.approved_rules.end();
    const bool own = !rule.asks.empty() && std::all_of(rule.asks.begin(), rule.asks.end(), [&](Ask ask) {
      return input.facts.asks.count(ask) == 0 || input.own_asks.count(ask) > 0;
    });
    decision.approvals.push_back({rule.approval, rule.id, rule.why, named || own ? input.approver : ""});
  }
  decision.tier_reason = input.rules->tier_reasons[static_cast<size_t>(decision.required_tier)];
  return decision;
}

Status Refusal(const Decision& decision, const Profile& profile) {
  if (decision.given_tier < decision.required_tier) {
    std::string cause = "the profile " + profile.name;
    std::string fix = "; or extend it in a profile of your own with \"tier: native\"";
    for (const RuleMatch& rule : decision.rules) {
      if (rule.tier == decision.required_tier && rule.tier > profile.tier) {
        cause = "the rule " + rule.id + " (" + rule.why + ")";
        fix.clear();
      }
    }
    return Error::Denied(std::string("isolation: ") + cause + " needs the tier " +
                         kTierNames[static_cast<size_t>(decision.required_tier)] + " and this runtime gives " +
                         kTierNames[static_cast<size_t>(decision.given_tier)] + "; use a runtime of that tier" + fix);
  }
  for (const ApprovalNeed& need : decision.approvals) {
    if (need.given_by.empty()) {
      return Error::Denied("approval: needs that of " + Quoted(need.approval) + " by the rule " + need.rule + " (" +
                           need.why + "); give it with --approve " + need.rule);
    }
  }
  return {};
}

ordered_json ToJson(const Override& one) {
  return {{"id", one.id},         {"kind", KindOf(one.grant)}, {"grant", Describe(one.grant)},
          {"reason", one.reason}, {"expires", one.expires},    {"granted_by", one.granted_by}};
}

ordered_json ToJson(const Decision& decision) {
  ordered_json rules = ordered_json::array(), approvals = ordered_json::array(), overrides = ordered_json::array();
  for (const RuleMatch& rule : decision.rules) {
    rules.push_back({{"id", rule.id}, {"tier", kTierNames[static_cast<size_t>(rule.tier)]}, {"why", rule.why}});
  }
  for (const ApprovalNeed& need : decision.approvals) {
    approvals.push_back({{"approval", need.approval},
                         {"rule", need.rule},
                         {"why", need.why},
                         {"given_by", need.given_by.empty() ? ordered_json() : ordered_json(need.given_by)}});
  }
  for (const Override& one : decision.overrides) overrides.push_back(ToJson(one));
  return {{"role", decision.role},
          {"required_tier", kTierNames[static_cast<size_t>(decision.required_tier)]},
          {"given_tier", kTierNames[static_cast<size_t>(decision.given_tier)]},
          {"tier_reason", decision.tier_reason},
          {"rules", std::move(rules)},
          {"approvals", std::move(approvals)},
          {"overrides", std::move(overrides)}};
}

}  // namespace caisson::policy
