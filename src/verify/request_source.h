// Reads the part of a request that names the source to verify.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "verify/request.h"

namespace caisson::verify {

// Reads the object at `path`, which must have exactly one of `path`, `files` and `archive`.
Result<Source> ReadSource(const nlohmann::json& value, const std::string& path);

// A file's bytes: a string, or {"base64": "…"}.
Result<std::string> ReadFileBytes(const nlohmann::json& value, const std::string& path);
// Files by name: relative names without faults, none of them a directory of another.
Result<std::vector<SourceFile>> ReadFiles(const nlohmann::json& value, const std::string& path);

}  // namespace caisson::verify
