// A result document as text for people, and its exit code.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace caisson::cli {

// 0 pass, 1 fail or cancelled, 3 rejected, 4 error. kSystem if the document is not a result.
Result<int> ExitCodeOf(const nlohmann::json& result);

void PrintResult(const nlohmann::json& result, const std::string& subject);

}  // namespace caisson::cli
