// Explains what a profile would do with a path, a host or a system call, and which line of the profile decides.
#pragma once

#include <string>

#include "base/result.h"
#include "policy/overrides.h"
#include "policy/profile.h"

namespace caisson::policy {

struct Explanation {
  bool allowed = false;
  std::string what;  // what would happen
  std::string rule;  // the line that says so
};

// Judges the path as the source of a mount, for a caller that holds `grants`.
Result<Explanation> ExplainPath(const Profile& profile, const std::string& path, Access access, Grants& grants);
Result<Explanation> ExplainHost(const Profile& profile, const std::string& host);
Result<Explanation> ExplainSyscall(const Profile& profile, const std::string& name);

}  // namespace caisson::policy
