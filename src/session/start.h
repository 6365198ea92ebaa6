// Starts the supervisor of a new session in a process of its own, which outlives the caller.
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/runtime.h"
#include "session/directory.h"
#include "session/open_request.h"

namespace caisson::session {

// Writes request.json and executes `program` as "caisson session supervise DIRECTORY", detached from the caller's
// terminal and process group. Returns when the session is open, or with the error for which it could not be opened.
Result<Record> StartSupervisor(const SessionDirectory& directory, const OpenRequest& request,
                               const std::string& program = "/proc/self/exe");

// The hidden command: supervises until the session ends. Tells StartSupervisor through descriptor kReadyFd.
inline constexpr int kReadyFd = 3;
int Supervise(const std::string& path, const runtime::Runtimes& runtimes, const OpenImage& open_image);

}  // namespace caisson::session
