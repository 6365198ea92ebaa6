// From a judged plan to the closed language of the sandbox, and from what the sandbox applied to the report. The
// runtime that runs sandboxes in this process and the one that asks a launcher share it, so they cannot differ.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"
#include "runtime/runtime.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"

namespace caisson::runtime::native {

struct LoweredPlan {
  sandbox::Spec spec;
  std::vector<std::string> given_up;  // walls the profile does without, each with what it kept out
};

Result<LoweredPlan> Lower(policy::RunPlan plan);

IsolationReport Describe(const sandbox::Isolation& applied, const std::vector<std::string>& given_up);

}  // namespace caisson::runtime::native
