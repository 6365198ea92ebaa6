// A runtime for tests: caisson-agent as PID 1 of plain namespaces, without a container program around them and without
// cgroups. What works here needs nothing but the agent.
#pragma once

#include <memory>
#include <string>

#include "runtime/runtime.h"

namespace caisson::support {

// `agent` is the path of the program.
std::unique_ptr<runtime::Runtime> MakeBareRuntime(std::string agent);

}  // namespace caisson::support
