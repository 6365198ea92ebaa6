// A command to run in a sandbox.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "policy/plan.h"

namespace caisson::runtime {

struct Command {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;  // on top of the profile's
  std::string cwd = "/workspace";

  static Command Of(const policy::PlannedCommand& planned) { return {planned.argv, planned.env, planned.cwd}; }
};

}  // namespace caisson::runtime
