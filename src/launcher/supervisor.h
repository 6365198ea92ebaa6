// The supervisor of one run: a process forked by the launcher that owns the client's connection and the sandbox.
//
// It lives as long as that connection: when the client closes it, or dies, the supervisor kills and removes the sandbox
// and ends. It dies with the launcher (parent-death signal); then PID 1 of the sandbox dies with it and the cleanup
// process removes the cgroups. A supervisor holds nothing that belongs to another run, so its crash affects only its
// own run.
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/unique_fd.h"
#include "launcher/channel.h"
#include "sandbox/host_resources.h"

namespace caisson::launcher {

// Separates a new child from the launcher: sets the parent-death signal, changes the process name to `name` and closes
// all descriptors except the standard streams and `kept`, which it returns under another number.
UniqueFd ForgetLauncher(pid_t launcher, UniqueFd kept, const char* name);

// Serves the run until its end. Runs: a child that has called ForgetLauncher.
void Supervise(RunRequest run_request, std::optional<sandbox::HostResources> resources = std::nullopt);

// The same for a run that has not arrived yet: prepares the host resources, reports that on `control_socket`, and waits
// there for the run or for the launcher to close it. `interpreter`: the interpreter that this process was forked from,
// if it is to serve commands.
void ServeParked(UniqueFd control_socket, const sandbox::WarmInterpreter* interpreter);

}  // namespace caisson::launcher
