// Reads the bodies of the session routes. Strict, as all documents from outside: unknown members are refused by path.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "session/command.h"
#include "session/open_request.h"
#include "verify/request.h"

namespace caisson::service {

struct OpenBody {
  session::OpenRequest request;
  std::vector<verify::SourceFile> files;  // what /workspace begins with
};
Result<OpenBody> ReadOpenBody(const nlohmann::json& body);

// What a fork has of its own; everything else is as in the session it begins with.
struct ForkBody {
  std::string name;
  std::optional<std::map<std::string, std::string>> labels;
  std::optional<int64_t> idle_ms, ttl_ms;
};
Result<ForkBody> ReadForkBody(const nlohmann::json& body);

struct ExecBody {
  session::CommandRequest command;
  bool has_timeout = false;
  std::string input;
  bool input_open = false;  // more input follows
};
Result<ExecBody> ReadExecBody(const nlohmann::json& body);

// {"signal": "TERM"}, {"signal": "SIGINT"} or {"signal": 15}
Result<int> ReadSignalBody(const nlohmann::json& body);

}  // namespace caisson::service
