#include "runtime/witnessed/agent_program.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace caisson::runtime::witnessed {

Result<std::string> FindAgent(const std::string& given, const std::string& runtime) {
  std::string path = given;
  if (path.empty()) {
    char self[PATH_MAX];
    const ssize_t size = ::readlink("/proc/self/exe", self, sizeof(self));
    if (size <= 0 || size == sizeof(self)) return Error::System(size < 0 ? errno : ENAMETOOLONG, "read /proc/self/exe");
    const std::string_view whole(self, static_cast<size_t>(size));
    path = std::string(whole.substr(0, whole.rfind('/') + 1)) + "caisson-agent";
  }
  if (::access(path.c_str(), X_OK) != 0)
    return Error::Unsupported("runtime " + runtime + ": " + path + " is missing; install it beside this program");
  return path;
}

}  // namespace caisson::runtime::witnessed
