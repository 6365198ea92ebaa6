// The native runtime behind a caisson-launcher, which creates the sandboxes for a client that has no rights to create
// them itself. This process lowers the plan and receives the outcome; commands run, and are reported, exactly as with
// MakeNativeRuntime.
//
// Any thread may call Start at any time; each Run belongs to the thread that uses it. When the launcher or the
// supervisor of a run dies, a command ends with Ending::kLost, and other calls return ErrorKind::kSystem with errno
// ECONNRESET: the workload is gone, its outcome is unknown, and the run may be tried again.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "runtime/runtime.h"

namespace caisson::runtime::native {

// Connects to the socket anew for each run, so that the launcher may be restarted. If the launcher cannot be reached,
// each Start fails; the runtime never runs a plan without it.
std::unique_ptr<Runtime> MakeLaunchedRuntime(std::string socket_path);

// Uses a connected seqpacket socket whose other end was given to `caisson-launcher --fd`.
std::unique_ptr<Runtime> MakeLaunchedRuntime(UniqueFd control);

}  // namespace caisson::runtime::native
