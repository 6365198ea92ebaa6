// Admission: request in, judged plan out. Everything that can be refused is refused here, before anything starts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"
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

// Limits the operator sets on the command line. They replace the profile's, up or down; a request may only tighten
// them.
using OperatorLimits = RequestedLimits;

// Errors: kInvalid (the request is wrong) or kDenied (policy says no).
Result<Admitted> Admit(const Request& request, const OperatorLimits& operator_limits);

// The profile's limits with the operator's on top; refuses what this machine does not have.
Result<policy::Limits> EffectiveLimits(const policy::Profile& profile, const OperatorLimits& operator_limits);

// The effective plan for people and tools, without file contents.
nlohmann::json DescribePlan(const policy::RunPlan& plan);

// Changes when and only when the effective policy does.
std::string PolicyDigest(const policy::RunPlan& plan);

}  // namespace caisson::verify
