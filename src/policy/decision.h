// Decision: what policy made of a request, with its reasons. It goes into the result, the events and the audit log.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/overrides.h"
#include "policy/rules.h"

namespace caisson::policy {

struct RuleMatch {
  std::string id;
  Tier tier = Tier::kNative;
  std::string why;
};

struct ApprovalNeed {
  std::string approval;  // whose
  std::string rule;
  std::string why;
  std::string given_by;  // empty: not given yet
};

struct Decision {
  std::string role;
  Tier required_tier = Tier::kNative;
  Tier given_tier = Tier::kNative;
  std::string tier_reason;
  std::vector<RuleMatch> rules;
  std::vector<ApprovalNeed> approvals;
  std::vector<Override> overrides;  // those that were needed
};

struct DecisionInput {
  const Rules* rules = nullptr;
  const Profile* profile = nullptr;
  RequestFacts facts;
  std::string role;
  Tier runtime_tier = Tier::kNative;
  std::vector<Override> overrides;
  std::vector<std::string> approved_rules;  // by whoever runs this
  std::set<Ask> own_asks;                   // asked for by the approver himself, so approved with the asking
  std::string approver;
};

// Never fails: whether the decision lets the request run is Refusal's to say.
Decision Decide(const DecisionInput& input);

// Why the request may not run, or nothing. kDenied.
Status Refusal(const Decision& decision, const Profile& profile);

nlohmann::ordered_json ToJson(const Override& one);
nlohmann::ordered_json ToJson(const Decision& decision);

}  // namespace caisson::policy
