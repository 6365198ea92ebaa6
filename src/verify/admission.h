// Admission turns a request into a judged plan. Every refusal happens here, before anything starts.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
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

// Limits that the operator sets on the command line. A lower limit tightens. A higher limit is a grant of the operator
// where the rules trust the command line, and refused where they do not.
using OperatorLimits = RequestedLimits;

// The caller of admission, and the rules that judge the request.
struct Authority {
  policy::Rules rules = policy::BuiltInRules();
  policy::ProfileStore profiles;
  std::string profile;  // name or file, given by the operator; empty: the request's
  std::string role = "operator";
  OperatorLimits limits;
  Network network;               // asked for on the command line; becomes part of the profile
  std::string credentials_file;  // empty: the installed one
  std::vector<std::string> approved_rules;
  std::vector<policy::RuntimeDescription> runtimes;  // the available runtimes; without one, nothing is admitted
  std::string runtime;                               // asked for by name; may only strengthen
  std::string image;                                 // asked for on the command line; the request's is used when empty
  // Opens an image by its name or digest. Without it, no image can be used.
  std::function<Result<policy::PlannedImage>(const std::string& reference)> open_image;
  std::string approver;  // who gave that approval; empty: the user who runs this
};

// Errors: kInvalid (the request is wrong) or kDenied (policy refuses it). `decision`, when given, receives the decision
// of policy, also for a refusal.
Result<Admitted> Admit(const Request& request, const Authority& authority, policy::Decision* decision = nullptr);

// The steps of admission that a command without a request shares. `Open` begins the admission, `Close` judges the
// whole.
class Admission {
 public:
  static Result<Admission> Open(const Authority& authority, const std::string& profile_name,
                                const std::string& request_id);

  policy::RunPlan& plan() { return plan_; }
  policy::Grants& grants() { return grants_; }
  // Adds an ability that the runtime must have; `by` names the origin of the need.
  void Need(policy::Ability ability, std::string by) { needs_.push_back({ability, std::move(by)}); }
  // Replaces the host's programs by those of an image. Call it before AddMount, which respects the image's trees.
  // `reference` is the request's; one on the command line wins. Nothing happens when both are empty.
  Status UseImage(const std::string& reference);
  Status Tighten(const RequestedLimits& limits);
  // The network that the document asks for; never more than the profile, the overrides and the command line allow.
  Status AskForNetwork(const Network& network);
  Result<policy::JudgedPath> OpenPath(const std::string& path, Access access);
  // Adds a mount that the document, or the user of the command line, asks for.
  Status AddMount(const std::string& source, const std::string& target, Access access, bool from_command_line);
  Status Close(policy::RequestFacts facts, bool from_command_line);

 private:
  explicit Admission(const Authority& authority) : authority_(&authority) {}
  Status ApplyOperatorLimits();
  Status ApplyOperatorNetwork();
  // True when the command line may have it, by itself or by an override that `is_granted` finds.
  template <typename IsGranted>
  bool GrantFromCommandLine(policy::Grant grant, const char* flag, IsGranted is_granted);
  Error NeedsOverride(const std::string& what, const policy::Grant& grant) const;
  Status PlanCredentials();
  Status AddProfileMounts();

  const Authority* authority_;
  policy::Grants grants_;
  policy::RunPlan plan_;
  std::set<policy::Ask> asks_, own_asks_;
  std::vector<policy::NeededAbility> needs_;
};

// The effective policy: the rules that a run under this plan must keep. The same document is hashed, recorded and
// shown.
nlohmann::ordered_json DescribePolicy(const policy::RunPlan& plan);

// The effective plan for people and tools, without file contents.
nlohmann::ordered_json DescribePlan(const policy::RunPlan& plan);

// Changes if and only if the effective policy changes.
std::string PolicyDigest(const policy::RunPlan& plan);

}  // namespace caisson::verify
