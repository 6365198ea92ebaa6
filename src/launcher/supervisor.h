// The supervisor of one run: a process forked by the launcher that owns the client's connection and the sandbox.
//
// It lives as long as that connection: when the client closes it, or dies, the sandbox is killed and removed and the
// process ends. It dies with the launcher (parent-death signal), and then PID 1 of the sandbox dies with it and the
// keeper removes the cgroups. One run's supervisor holds nothing of another run's, so its crash is that run's only.
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/unique_fd.h"
#include "launcher/channel.h"
#include "sandbox/berth.h"

namespace caisson::launcher {

// Turns a new child of the launcher into a process of its own: it dies with the launcher, has the launcher's name no
// more, and of its descriptors keeps the standard streams and `kept`, which it returns under another number.
UniqueFd ForgetLauncher(pid_t launcher, UniqueFd kept, const char* name);

// Serves the run until its end. Runs: a child that has forgotten the launcher.
void Supervise(Opening opening, std::optional<sandbox::Berth> berth = std::nullopt);

// The same for a run that is still to come: prepares, says so on `leash`, and waits there for the run or the end.
// `interpreter`: what the process was forked from, if it is to serve commands.
void ServeParked(UniqueFd leash, const sandbox::Interpreter* interpreter);

}  // namespace caisson::launcher
