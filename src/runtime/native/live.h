// A live run of the native runtime: the sandbox in this process, and its supervisor.
#pragma once

#include <memory>

#include "runtime/live_run.h"
#include "runtime/native/lower.h"

namespace caisson::runtime::native {

Result<std::unique_ptr<LiveRun>> OpenLiveRun(LoweredPlan plan);

}  // namespace caisson::runtime::native
