// A result document for people, and what it means for the exit code.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace caisson::cli {

// 0 pass, 1 fail or cancelled, 3 rejected, 4 error. kSystem when it is no result at all.
Result<int> ExitCodeOf(const nlohmann::json& result);

void PrintResult(const nlohmann::json& result, const std::string& subject);

}  // namespace caisson::cli
