// The runtime oci: containers by runc or crun, with caisson-agent as their PID 1. Needs root.
//
// Any thread may call Start; each Run belongs to the thread that uses it.
#pragma once

#include <memory>
#include <string>

#include "policy/runtimes.h"
#include "runtime/runtime.h"

namespace caisson::runtime::oci {

policy::RuntimeDescription DescribeOci();

// Looks for nothing yet: a missing program is an error of Start. `agent` is the path of caisson-agent; empty: beside
// this program.
std::unique_ptr<Runtime> MakeOciRuntime(std::string agent = "");

}  // namespace caisson::runtime::oci
