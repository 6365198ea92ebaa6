// Readers of the parts of a verification request that other documents have too.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "verify/request.h"

namespace caisson::verify {

struct CommandLine {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;
};
// The members `argv` and, if it is there, `env` of the object at `path`; together at most `most_bytes`.
Result<CommandLine> ReadCommandLine(const nlohmann::json& value, const std::string& path,
                                    size_t most_bytes = kMaxArgvEnvBytes);
Result<std::vector<std::pair<std::string, std::string>>> ReadEnvironment(const nlohmann::json& value,
                                                                         const std::string& path);
Result<RequestedLimits> ReadLimits(const nlohmann::json& value, const std::string& path);
Result<Network> ReadNetwork(const nlohmann::json& value, const std::string& path);
Result<std::map<std::string, std::string>> ReadLabels(const nlohmann::json& value, const std::string& path);
Result<std::string> ReadProfile(const nlohmann::json& value, const std::string& path);

}  // namespace caisson::verify
