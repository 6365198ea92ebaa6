#include "base/error.h"

#include <cstring>

namespace caisson {

Error Error::System(int errno_value, std::string what) {
  return {ErrorKind::kSystem, errno_value, std::move(what) + ": " + ::strerror(errno_value)};
}

}  // namespace caisson
