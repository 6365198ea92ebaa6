// Which host paths may be shown to a workload. A path is opened once; what is judged is the thing that was opened, by
// every name the kernel has for it, so "..", symbolic links, bind mounts and look-alike prefixes have nothing left to
// deceive. The descriptor that was judged is the one that gets mounted.
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

// By what a path is judged besides the rules that always hold.
struct PathRules {
  const ProjectPaths* project = nullptr;  // nullptr: whatever is not sensitive may be asked for
  Grants* grants = nullptr;               // nullptr: nobody may override anything
};

// kInvalid when it does not exist or cannot be opened, kDenied when policy refuses it; both name the path and the rule.
Result<JudgedPath> OpenJudged(const std::string& path, Access wanted = Access::kReadOnly, const PathRules& rules = {});

// What OpenJudged would say and why, for people: "allowed: …" or "refused: …".
std::string ExplainPath(const std::string& path, Access wanted, const PathRules& rules);

}  // namespace caisson::policy
