// Which host paths may be shown to a workload. A path is opened once; what is judged is the thing that was opened, by
// the name the kernel gives it, so "..", symbolic links and look-alike prefixes have nothing left to deceive.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::policy {

struct JudgedPath {
  UniqueFd fd;            // O_PATH
  std::string canonical;  // absolute, no symbolic links
  bool is_directory = false;
};

// kInvalid when it does not exist or cannot be opened, kDenied when policy refuses it; both name the path and the rule.
Result<JudgedPath> OpenJudged(const std::string& path);

}  // namespace caisson::policy
