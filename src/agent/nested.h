// Serves the protocol of a runtime outside through a native sandbox: the agent passes frames on between the runtime and
// a supervisor process (launcher/supervisor.h), which builds the sandbox and observes it. For a machine of the agent's
// own, where it has the privileges that a container's PID 1 lacks.
#pragma once

#include "agent/channel.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::agent {

// Trees that the plan mounts are found here, named by their place in the list of mounts.
inline constexpr char kShownMounts[] = "/shared/mounts/";

// `supervisor` is the client's end of the supervisor's connection. Returns the error that ended the service; the end of
// the runtime's stream is one too.
Error ServeNested(Channel& channel, UniqueFd supervisor);

}  // namespace caisson::agent
