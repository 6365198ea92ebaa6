// Keeps a caisson-launcher running beside the service.
//
// The service drops its privileges, but starting a launcher needs them. So a small guard process, forked before that,
// only starts launchers: one at a time, and a new one when the last one died. The guard ends with the service, and the
// launcher ends with the guard. If the guard is killed, the service must end too: `died` reports it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::service {

class LauncherGuard {
 public:
  // Call while the process has one thread. `arguments` is the launcher's command line; the launcher is taken from the
  // directory of the running program. Returns when the launcher listens on `socket`.
  static Result<LauncherGuard> Start(const std::string& socket, const std::vector<std::string>& arguments);

  // Whether the launcher listens right now.
  bool Listens() const;

  int died_fd() const { return process_.get(); }       // readable when the guard is gone
  int restarts_fd() const { return restarts_.get(); }  // a byte for each launcher after the first

 private:
  std::string socket_;
  UniqueFd process_, restarts_, alive_;
};

}  // namespace caisson::service
