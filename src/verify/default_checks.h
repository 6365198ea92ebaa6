// The checks for a source whose request names none.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "verify/request.h"

namespace caisson::verify {

struct SkippedCheck {
  std::string name;
  std::string tier;
  std::string reason;
};

struct DefaultChecks {
  std::vector<Check> checks;
  std::vector<SkippedCheck> skipped;
};

// Exit code of the `test` check when its process ended with success before the test runner had finished.
inline constexpr int kIncompleteExitCode = 70;

// `names` are the source's files, relative to /workspace; `given_file` is set when the source is that one file. Returns
// kInvalid, with advice, when the language is unknown or no entry file can be determined.
Result<DefaultChecks> ChooseChecks(const std::vector<std::string>& names, const std::string& given_file);

}  // namespace caisson::verify
