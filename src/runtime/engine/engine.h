// The runtime container: containers of a container engine (Docker, Podman) that listens at a socket of this machine,
// with caisson-agent as their PID 1.
//
// Any thread may call Start; each Run belongs to the thread that uses it.
#pragma once

#include <memory>
#include <string>

#include "policy/runtimes.h"
#include "runtime/runtime.h"

namespace caisson::runtime::engine {

policy::RuntimeDescription DescribeEngine();

// Looks for nothing yet: a missing engine is an error of Start. `agent` is the path of caisson-agent; empty: beside
// this program.
std::unique_ptr<Runtime> MakeEngineRuntime(std::string agent = "");

}  // namespace caisson::runtime::engine
