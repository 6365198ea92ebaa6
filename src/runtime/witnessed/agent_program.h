// Finds caisson-agent.
#pragma once

#include <string>

#include "base/result.h"

namespace caisson::runtime::witnessed {

// `given`: a path; empty: beside this program. `runtime` is named in the error.
Result<std::string> FindAgent(const std::string& given, const std::string& runtime);

}  // namespace caisson::runtime::witnessed
