// The runtime microvm: each run in a virtual machine of its own, by QEMU, with caisson-agent as its PID 1 and a native
// sandbox in it. Needs root.
//
// Any thread may call Start; each Run belongs to the thread that uses it.
#pragma once

#include <memory>
#include <string>

#include "policy/runtimes.h"
#include "runtime/runtime.h"

namespace caisson::runtime::microvm {

policy::RuntimeDescription DescribeMicrovm();

// Looks for nothing yet: a missing program or kernel is an error of Start. `agent` is the path of caisson-agent; empty:
// beside this program.
std::unique_ptr<Runtime> MakeMicrovmRuntime(std::string agent = "");

}  // namespace caisson::runtime::microvm
