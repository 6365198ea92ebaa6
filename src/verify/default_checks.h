// The checks a source gets when its request names none.
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

// Of the `test` check when its process ended with success before the test runner had finished.
inline constexpr int kIncompleteExitCode = 70;

// `names` are the source's files, relative to /workspace; `given_file` is set when the source is that one file.
// kInvalid, with what to do about it, when the language is not known or no entry file can be told.
Result<DefaultChecks> ChooseChecks(const std::vector<std::string>& names, const std::string& given_file);

}  // namespace caisson::verify
