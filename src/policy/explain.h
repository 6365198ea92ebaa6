// What a profile would do with a path, a host or a system call, and which of its lines says so.
#pragma once

#include <string>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::policy {

struct Explanation {
  bool allowed = false;
  std::string what;  // what would happen
  std::string rule;  // the line that says so
};

// As the source of a mount.
Result<Explanation> ExplainPath(const Profile& profile, const std::string& path, Access access);
Result<Explanation> ExplainHost(const Profile& profile, const std::string& host);
Result<Explanation> ExplainSyscall(const Profile& profile, const std::string& name);

}  // namespace caisson::policy
