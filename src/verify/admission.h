// Admission: request in, judged plan out. Everything that can be refused is refused here, before anything starts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/path_policy.h"
#include "policy/plan.h"
#include "policy/profile_store.h"
#include "policy/rules.h"
#include "verify/default_checks.h"
#include "verify/request.h"

namespace caisson::verify {

struct Admitted {
  policy::RunPlan plan;
  std::vector<SkippedCheck> skipped;
  bool default_checks = false;
  std::string source_digest;
  std::string policy_digest;
};

// Limits the operator sets on the command line. A lower one tightens; a higher one is a grant of his, where the rules
// trust the command line, and refused where they do not.
using OperatorLimits = RequestedLimits;

// Who asks, and by which rules he is judged.
struct Authority {
  policy::Rules rules = policy::BuiltInRules();
  policy::ProfileStore profiles;
  std::string profile;  // name or file, given by the operator; empty: the request's
  std::string role = "operator";
  OperatorLimits limits;
  std::vector<std::string> approved_rules;
  std::string approver;  // whose approval that is; empty: of whoever runs this
};

// Errors: kInvalid (the request is wrong) or kDenied (policy says no).
// `decision`, when given, is what policy made of it, also when that was a refusal.
Result<Admitted> Admit(const Request& request, const Authority& authority, policy::Decision* decision = nullptr);

// The steps of admission that a command without a request shares. `Open` begins it, `Close` judges the whole.
class Admission {
 public:
  static Result<Admission> Open(const Authority& authority, const std::string& profile_name,
                                const std::string& request_id);

  policy::RunPlan& plan() { return plan_; }
  policy::Grants& grants() { return grants_; }
  Status Tighten(const RequestedLimits& limits);
  Result<policy::JudgedPath> OpenPath(const std::string& path, Access access);
  // A mount the document, or the person at the command line, asks for.
  Status AddMount(const std::string& source, const std::string& target, Access access, bool from_command_line);
  Status Close(policy::RequestFacts facts, bool from_command_line);

 private:
  explicit Admission(const Authority& authority) : authority_(&authority) {}
  Status ApplyOperatorLimits();
  Status AddProfileMounts();

  const Authority* authority_;
  policy::Grants grants_;
  policy::RunPlan plan_;
  std::set<policy::Ask> asks_, own_asks_;
};

// The effective policy: what a run under this plan is held to. The same document is hashed, recorded and shown.
nlohmann::ordered_json DescribePolicy(const policy::RunPlan& plan);

// The effective plan for people and tools, without file contents.
nlohmann::ordered_json DescribePlan(const policy::RunPlan& plan);

// Changes when and only when the effective policy does.
std::string PolicyDigest(const policy::RunPlan& plan);

}  // namespace caisson::verify
