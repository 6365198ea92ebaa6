// The part of a request that says what is verified.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "verify/request.h"

namespace caisson::verify {

// Reads the object at `path`, which must have exactly one of `path`, `files` and `archive`.
Result<Source> ReadSource(const nlohmann::json& value, const std::string& path);

}  // namespace caisson::verify
