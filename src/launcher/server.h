// The launcher: receives run requests and forks a supervisor for each. It builds no sandbox itself and parses nothing
// but an eight-byte message with one descriptor.
//
// Permitted clients:
//   --fd       any process that holds the other end of the inherited connection; when that closes, the launcher ends
//   --socket   root, the launcher's own user and, if the launcher is root, one configured user; the kernel vouches for
//              the sender of each message
//
// When the launcher ends, for any reason, its supervisors die with it and their sandboxes with them.
//
// Thread: one. Uses SIGCHLD, SIGTERM, SIGINT and SIGHUP.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/pool.h"

namespace caisson::launcher {

struct ServerOptions {
  UniqueFd control;         // an inherited connection, or
  std::string socket_path;  // the path to listen at
  std::optional<uid_t> allowed_uid;
  size_t max_runs = 256;
  Pool::Options pool;
  std::optional<std::string> python_modules;  // keep an interpreter with these imported, and fork members from it
};

// Returns when asked to end, after every process that it started has ended.
Status Serve(ServerOptions options);

}  // namespace caisson::launcher
