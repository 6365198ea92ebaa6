// Byte strings in JSON. Arguments, variables and paths may hold any byte but NUL, and JSON only UTF-8: a string that is
// not UTF-8 becomes {"base64": "…"}.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::session {

nlohmann::json BytesToJson(std::string_view bytes);
// Refuses NUL. `path` names the value in errors.
Result<std::string> BytesFromJson(const nlohmann::json& value, const std::string& path);

nlohmann::json BytesToJson(const std::vector<std::string>& items);
Result<std::vector<std::string>> BytesListFromJson(const nlohmann::json& value, const std::string& path,
                                                   size_t most_items);

}  // namespace caisson::session
