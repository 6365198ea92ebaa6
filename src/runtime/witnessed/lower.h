// Translates a judged plan into the agent's. Shared by all runtimes that work through the agent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/protocol.h"
#include "base/result.h"
#include "policy/plan.h"
#include "policy/runtimes.h"
#include "runtime/command.h"
#include "sandbox/spec.h"

namespace caisson::runtime::witnessed {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct LoweredPlan {
  agent::Plan agent;
  std::vector<policy::PlannedFile> files;  // of the workspace
  Environment environment;                 // the profile's, for every command
  std::vector<std::string> given_up;       // walls that the profile gives up, each with what it kept out
};

// `files` and `environment` are moved out of the plan. A profile that gives up a wall that `runtime` needs is refused.
Result<LoweredPlan> Lower(policy::RunPlan& plan, const policy::RuntimeDescription& runtime);
sandbox::Command Lower(const Command& command, const Environment& environment);

}  // namespace caisson::runtime::witnessed
