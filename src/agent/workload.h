// Starts the process of one command inside foreign walls: the walls that need no privileges go around it, and the agent
// gets the descriptor by which the kernel tells of its calls.
//
// Runs: agent; what comes between clone and exec runs in the new process, which allocates nothing and reports a failed
// step as {step, errno}.
#pragma once

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/command_order.h"
#include "sandbox/setup.h"
#include "sandbox/spec.h"

namespace caisson::agent {

struct StartedWorkload {
  pid_t pid = -1;
  UniqueFd listener;  // of the filter; none where the agent does not observe
  UniqueFd report;    // has the errno of a failed exec; ends without one when the program was executed
};

struct WorkloadWalls {
  bool observe = true;                // install the spec's filter and observe
  bool commands_become_user = false;  // from root, which the agent is then
};

// `context` names the spec and how Landlock is used.
Result<StartedWorkload> StartWorkload(sandbox::SetupContext& context, const sandbox::Command& command,
                                      const sandbox::WorkloadStreams& streams, const WorkloadWalls& walls);

// The errno of a failed exec that the workload's process reported; 0 when it reported none.
int TakeExecFailure(const StartedWorkload& workload);

}  // namespace caisson::agent
