// Finds the service that a command may use without being told to: one that is meant for this user, and ready.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "client/client.h"

namespace caisson::cli {

struct Discovery {
  std::optional<client::Client> service;
  std::string absence;      // why there is none, for who insists on one
  bool surprising = false;  // something is there and cannot be used: worth a line also to who does not insist
};

// CAISSON_URL names a service: it is taken at its word, and whether it answers shows when it is asked. Otherwise the
// first default socket that is trusted and says within a second that it takes jobs.
//
// SECURITY: the service sees the source and makes the verdict. So a socket that nobody named must belong, like its
// directory, to root or to this user: others could put one where we look. One that this user may not open is somebody
// else's service and no error.
Result<Discovery> DiscoverService();

}  // namespace caisson::cli
