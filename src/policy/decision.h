// Decision: how policy judged a request, with its reasons. It goes into the result, the events and the audit log.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/overrides.h"
#include "policy/rules.h"
#include "policy/runtimes.h"

namespace caisson::policy {

struct RuleMatch {
  std::string id;
  Strength strength = Strength::kNative;
  std::string why;
};

struct ApprovalNeed {
  std::string approval;  // the role that must approve
  std::string rule;
  std::string why;
  std::string given_by;  // empty: not given yet
};

struct Decision {
  std::string role;
  std::string lock_owner;  // who is responsible for the rules that made it
  Strength required_strength = Strength::kNative;
  std::string runtime;  // the chosen runtime; empty: none suffices, and no_runtime says why
  Strength given_strength =
      Strength::kNative;  // of the chosen runtime, or of the strongest that could have been chosen
  std::string no_runtime;
  std::string strength_reason;
  std::vector<RuleMatch> rules;
  std::vector<ApprovalNeed> approvals;
  std::vector<Override> overrides;  // the overrides that were needed
};

struct DecisionInput {
  const Rules* rules = nullptr;
  const Profile* profile = nullptr;
  RequestFacts facts;
  std::string role;
  const Limits* limits = nullptr;  // null: the profile's
  std::vector<RuntimeDescription> runtimes;
  std::string runtime;  // asked for by name; it may be stronger than the rules require, never weaker
  std::vector<NeededAbility> needs;
  std::vector<Override> overrides;
  std::vector<std::string> approved_rules;  // approved by the caller
  std::set<Ask> own_asks;                   // asked for by the approver, so asking approves them
  std::string approver;
};

// Never fails: Refusal says whether the decision lets the request run.
Decision Decide(const DecisionInput& input);

// Why the request may not run, or nothing. kDenied.
Status Refusal(const Decision& decision);

nlohmann::ordered_json ToJson(const Override& one);
nlohmann::ordered_json ToJson(const Decision& decision);

}  // namespace caisson::policy
