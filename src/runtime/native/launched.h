// The native tier in somebody else's hands: sandboxes made by a caisson-launcher, for a client that has no rights to
// make them itself. The plan is lowered here and the outcome comes back; what runs, and what is reported of it, is the
// same as with MakeNativeRuntime.
//
// Start may be called from any thread at any time; each Run belongs to the thread that uses it. When the launcher or a
// run's supervisor goes away, the call that waits for it returns ErrorKind::kSystem with errno ECONNRESET: the workload
// is gone, what became of it is not known, and the run may be tried again.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "runtime/runtime.h"

namespace caisson::runtime::native {

// Connects to the socket anew for each run, so that a launcher may be restarted. One that cannot be reached is an error
// of each Start, never a reason to run without it.
std::unique_ptr<Runtime> MakeLaunchedRuntime(std::string socket_path);

// Over a connected seqpacket socket whose other end was given to `caisson-launcher --fd`.
std::unique_ptr<Runtime> MakeLaunchedRuntime(UniqueFd control);

}  // namespace caisson::runtime::native
