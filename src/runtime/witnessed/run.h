// A run in a container of another program, told by the agent inside and checked from outside. What is known outside
// (the clock, the bytes of output, the counters of the cgroup, the end of the container) decides over what the agent
// tells.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/protocol.h"
#include "runtime/runtime.h"
#include "runtime/witnessed/container.h"
#include "runtime/witnessed/lower.h"

namespace caisson::runtime::witnessed {

// Sends the plan and the workspace to the agent and waits until it is ready; the run's report comes from `describe`,
// which is called then. `more` returns violations that another observer has seen since the last call, and is called
// until it returns none; may be empty. The command ends with one whose evidence has the answer "killed".
using DescribeReady = std::function<Result<IsolationReport>(const agent::Ready& ready)>;
using TakeViolations = std::function<Result<std::vector<Violation>>()>;
Result<std::unique_ptr<Run>> BeginRun(std::unique_ptr<Container> container, LoweredPlan plan,
                                      const DescribeReady& describe, TakeViolations more = {});

}  // namespace caisson::runtime::witnessed
