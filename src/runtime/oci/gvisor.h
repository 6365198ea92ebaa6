// The runtime gvisor: containers by runsc on a kernel of their own, with caisson-agent as their PID 1 and gVisor's
// trace session as the observer. Needs root.
//
// Any thread may call Start; each Run belongs to the thread that uses it.
#pragma once

#include <memory>
#include <string>

#include "policy/runtimes.h"
#include "runtime/runtime.h"

namespace caisson::runtime::oci {

policy::RuntimeDescription DescribeGvisor();

// Looks for nothing yet: a missing program is an error of Start. `agent` is the path of caisson-agent; empty: beside
// this program.
std::unique_ptr<Runtime> MakeGvisorRuntime(std::string agent = "");

}  // namespace caisson::runtime::oci
