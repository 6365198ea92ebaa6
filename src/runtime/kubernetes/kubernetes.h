// The runtime kubernetes: each run is a Job whose one pod has caisson-agent as its PID 1. The plan, the files and the
// streams go through the pod's attached streams, so that the pod needs no storage, no network and no token.
//
// Any thread may call Start; each Run belongs to the thread that uses it.
#pragma once

#include <memory>

#include "policy/runtimes.h"
#include "runtime/runtime.h"

namespace caisson::runtime::kubernetes {

policy::RuntimeDescription DescribeKubernetes();

// Reads nothing yet: missing settings are an error of Start.
std::unique_ptr<Runtime> MakeKubernetesRuntime();

}  // namespace caisson::runtime::kubernetes
