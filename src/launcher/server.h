// The launcher: takes requests for runs and forks a supervisor for each. It builds no sandbox itself and parses nothing
// but an eight-byte message with one descriptor.
//
// Who may ask:
//   --fd       whoever holds the other end of the inherited connection; when that closes, the launcher ends
//   --socket   root, the launcher's own user and, if it is root, one user it was told of; as the kernel vouches for
//              the sender of each message
//
// When the launcher ends, however it ends, its supervisors die with it and their sandboxes with them.
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
  std::string socket_path;  // where to listen
  std::optional<uid_t> allowed_uid;
  size_t max_runs = 256;
  Pool::Options pool;
  std::optional<std::string> python_modules;  // keep an interpreter with these imported, and members forked from it
};

// Returns when asked to end, with everything it had started gone.
Status Serve(ServerOptions options);

}  // namespace caisson::launcher
