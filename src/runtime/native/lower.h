// Translates a judged plan into the closed language of the sandbox, and what the sandbox applied into the report. The
// in-process runtime and the launcher's client share this code, so they cannot differ.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"
#include "runtime/native/description.h"
#include "runtime/runtime.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"

namespace caisson::runtime::native {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct LoweredPlan {
  sandbox::Spec spec;
  Environment environment;            // the profile's, for every command
  std::vector<std::string> given_up;  // walls that the profile gives up, each with what it kept out
};

// `runtime` is the one that runs the sandbox, and refuses a profile that gives up a wall it needs.
Result<LoweredPlan> Lower(policy::RunPlan plan, const policy::RuntimeDescription& runtime = DescribeNative());
sandbox::Access Lower(policy::Access access);
sandbox::Command Lower(const Command& command, const Environment& environment);

IsolationReport Describe(const sandbox::Isolation& applied, const std::vector<std::string>& given_up);

}  // namespace caisson::runtime::native
