// Decides which host paths a workload may see. A path is opened once, and policy judges the opened file by every name
// that the kernel has for it, so "..", symbolic links, bind mounts and look-alike prefixes cannot deceive it. The
// judged descriptor is the one that gets mounted.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/overrides.h"
#include "policy/profile.h"

namespace caisson::policy {

struct JudgedPath {
  UniqueFd fd;            // O_PATH
  std::string canonical;  // absolute, no symbolic links
  bool is_directory = false;
};

// The rules that apply to a path besides those that always hold.
struct PathRules {
  const ProjectPaths* project = nullptr;  // nullptr: every path that is not sensitive is allowed
  Grants* grants = nullptr;               // nullptr: there are no overrides
};

// kInvalid when it does not exist or cannot be opened, kDenied when policy refuses it; both name the path and the rule.
Result<JudgedPath> OpenJudged(const std::string& path, Access wanted = Access::kReadOnly, const PathRules& rules = {});

// The answer of OpenJudged and its reason, for people: "allowed: …" or "refused: …".
std::string ExplainPath(const std::string& path, Access wanted, const PathRules& rules);

}  // namespace caisson::policy
