// Finds the service that a command uses by default: one that is meant for this user, and ready.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "client/client.h"

namespace caisson::cli {

struct Discovery {
  std::optional<client::Client> service;
  std::string absence;      // why there is none, for --service
  bool surprising = false;  // a service exists but cannot be used: worth a message even without --service
};

// If CAISSON_URL names a service, it is used without a check. Otherwise the first default socket that is trusted and
// reports within a second that it accepts jobs.
//
// SECURITY: the service sees the source and makes the verdict. So a default socket and its directory must belong to
// root or to this user: another user could create a socket there. A socket that this user may not open belongs to
// another user's service and is not an error.
Result<Discovery> DiscoverService();

}  // namespace caisson::cli
