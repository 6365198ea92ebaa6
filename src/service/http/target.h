// The target of a request, taken apart: "/v1/jobs/42/events?limit=10".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace caisson::service::http {

// Errors are kInvalid and begin with the parameter's name.
class Query {
 public:
  // `text` is what follows the question mark. Unknown parameters and repeated ones are refused: a filter that is
  // silently ignored would show too much.
  static Result<Query> Parse(std::string_view text, const std::vector<std::string_view>& known);

  std::optional<std::string> Text(std::string_view name) const;
  Result<int64_t> Number(std::string_view name, int64_t standard, int64_t minimum, int64_t maximum) const;
  Result<bool> Flag(std::string_view name) const;  // "1" or "true", "0" or "false"; absent: false
  // Milliseconds of "30s"; 0 when absent.
  Result<int64_t> Duration(std::string_view name, int64_t maximum_ms) const;

 private:
  std::vector<std::pair<std::string, std::string>> parameters_;
};

}  // namespace caisson::service::http
