// The supervisor of one run: a process forked by the launcher that owns the client's connection and the sandbox.
//
// It lives as long as that connection: when the client closes it, or dies, the sandbox is killed and removed and the
// process ends. It dies with the launcher (parent-death signal), and then PID 1 of the sandbox dies with it and the
// keeper removes the cgroups. One run's supervisor holds nothing of another run's, so its crash is that run's only.
#pragma once

#include <sys/socket.h>

#include "base/unique_fd.h"

namespace caisson::launcher {

// Serves the run until its end. Runs: a process of its own, single-threaded, that has forgotten the launcher's
// descriptors. `client` is whom the kernel saw asking for the run.
void Supervise(UniqueFd connection, const struct ucred& client);

}  // namespace caisson::launcher
