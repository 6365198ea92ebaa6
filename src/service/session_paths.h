// Errors about paths inside a session. A supervisor's failed system call is about the path that the caller named, not
// about the service; the errno stays, so that clients can tell a directory from a missing right.
#pragma once

#include <utility>

#include "base/result.h"

namespace caisson::service {

Error AboutPath(Error error);

template <typename T>
Result<T> AboutPath(Result<T> result) {
  if (result) return result;
  return AboutPath(std::move(result).error());
}

inline Status AboutPath(Status status) {
  if (status) return status;
  return AboutPath(std::move(status).error());
}

}  // namespace caisson::service
