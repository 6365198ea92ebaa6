#include "policy/decision.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/words.h"

namespace caisson::policy {

using nlohmann::ordered_json;

namespace {

// Explains which rule requires the strength, and how its owner can change that.
std::string ExplainStrength(const Decision& decision, const Profile& profile, const std::string& strongest) {
  std::string cause = "the profile " + profile.name;
  std::string fix = "; or extend it in a profile of your own with \"strength: native\"";
  for (const RuleMatch& rule : decision.rules) {
    if (rule.strength == decision.required_strength && rule.strength > profile.strength) {
      cause = "the rule " + rule.id + " (" + rule.why + ")";
      fix.clear();
    }
  }
  return cause + " needs the strength " + NameOf(decision.required_strength) + " and the runtime " + strongest +
         " gives " + NameOf(decision.given_strength) + "; use a runtime of that strength" + fix;
}

// Chooses the weakest runtime that suffices, because a stronger one costs more.
void ChooseRuntime(const DecisionInput& input, Decision& decision) {
  std::vector<const RuntimeDescription*> candidates;
  std::string names;
  for (const RuntimeDescription& one : input.runtimes) {
    names += (names.empty() ? "" : ", ") + one.name;
    if (input.runtime.empty() || input.runtime == one.name) candidates.push_back(&one);
  }
  if (candidates.empty()) {
    decision.no_runtime = input.runtime.empty() ? "isolation: there is no runtime"
                                                : "isolation: the runtime " + input.runtime +
                                                      " is not part of this program, which has " + names;
    return;
  }
  const auto weaker = [](const auto* one, const auto* other) { return one->strength < other->strength; };
  std::stable_sort(candidates.begin(), candidates.end(), weaker);
  const Limits& limits = input.limits != nullptr ? *input.limits : input.profile->limits;
  for (const RuntimeDescription* one : candidates) {
    decision.given_strength = one->strength;
    if (one->strength < decision.required_strength) continue;
    const std::string obstacle = FindObstacle(*one, *input.profile, limits, input.needs);
    if (obstacle.empty()) {
      decision.runtime = one->name;
      return;
    }
    if (decision.no_runtime.empty()) decision.no_runtime = obstacle;
  }
  if (decision.no_runtime.empty())
    decision.no_runtime =
        "isolation: " + ExplainStrength(decision, *input.profile,
                                        (*std::max_element(candidates.begin(), candidates.end(), weaker))->name);
}

}  // namespace

Decision Decide(const DecisionInput& input) {
  Decision decision;
  decision.role = input.role;
  decision.lock_owner = input.rules->lock_owner;
  decision.overrides = input.overrides;
  decision.required_strength = input.profile->strength;
  for (const RiskRule& rule : input.rules->risk) {
    if (!rule.Matches(input.facts)) continue;
    decision.rules.push_back({rule.id, rule.strength, rule.why});
    decision.required_strength = std::max(decision.required_strength, rule.strength);
    if (rule.approval.empty()) continue;
    const bool named =
        std::find(input.approved_rules.begin(), input.approved_rules.end(), rule.id) != input.approved_rules.end();
    const bool own = !rule.asks.empty() && std::all_of(rule.asks.begin(), rule.asks.end(), [&](Ask ask) {
      return input.facts.asks.count(ask) == 0 || input.own_asks.count(ask) > 0;
    });
    decision.approvals.push_back({rule.approval, rule.id, rule.why, named || own ? input.approver : ""});
  }
  ChooseRuntime(input, decision);
  if (!decision.runtime.empty()) decision.no_runtime.clear();
  decision.strength_reason = input.rules->strength_reasons[static_cast<size_t>(decision.required_strength)];
  return decision;
}

Status Refusal(const Decision& decision) {
  if (decision.runtime.empty()) return Error::Denied(decision.no_runtime);
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
    rules.push_back({{"id", rule.id}, {"strength", NameOf(rule.strength)}, {"why", rule.why}});
  }
  for (const ApprovalNeed& need : decision.approvals) {
    approvals.push_back({{"approval", need.approval},
                         {"rule", need.rule},
                         {"why", need.why},
                         {"given_by", need.given_by.empty() ? ordered_json() : ordered_json(need.given_by)}});
  }
  for (const Override& one : decision.overrides) overrides.push_back(ToJson(one));
  return {{"role", decision.role},
          {"lock_owner", decision.lock_owner},
          {"runtime", decision.runtime.empty() ? ordered_json() : ordered_json(decision.runtime)},
          {"required_strength", NameOf(decision.required_strength)},
          {"given_strength", NameOf(decision.given_strength)},
          {"strength_reason", decision.strength_reason},
          {"rules", std::move(rules)},
          {"approvals", std::move(approvals)},
          {"overrides", std::move(overrides)}};
}

}  // namespace caisson::policy
