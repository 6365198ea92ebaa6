#include "service/http/target.h"

#include <algorithm>

#include "base/percent.h"
#include "base/units.h"
#include "base/words.h"

namespace caisson::service::http {

namespace {

Error Fault(std::string_view name, const std::string& what) { return Error::Invalid(std::string(name) + ": " + what); }

}  // namespace

Result<Query> Query::Parse(std::string_view text, const std::vector<std::string_view>& known) {
  Query query;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const auto name = PercentDecode(part.substr(0, equals), true);
    const auto value = equals == std::string_view::npos ? std::optional<std::string>("")
                                                        : PercentDecode(part.substr(equals + 1), true);
    if (!name || !value) return Error::Invalid("query: an escape is not UTF-8 text");
    if (std::find(known.begin(), known.end(), *name) == known.end())
      return Error::Invalid("query: there is no parameter " + Quoted(*name) + " here");
    if (query.Text(*name)) return Fault(*name, "comes twice");
    query.parameters_.emplace_back(*name, *value);
  }
  return query;
}

std::optional<std::string> Query::Text(std::string_view name) const {
  for (const auto& [key, value] : parameters_)
    if (key == name) return value;
  return std::nullopt;
}

Result<int64_t> Query::Number(std::string_view name, int64_t standard, int64_t minimum, int64_t maximum) const {
  const auto text = Text(name);
  if (!text) return standard;
  const Result<int64_t> number = ParseCount(*text);
  if (!number || *number < minimum || *number > maximum)
    return Fault(name, "is not a number from " + std::to_string(minimum) + " to " + std::to_string(maximum));
  return *number;
}

Result<bool> Query::Flag(std::string_view name) const {
  const auto text = Text(name);
  if (!text || *text == "0" || *text == "false") return false;
  if (*text == "1" || *text == "true") return true;
  return Fault(name, "is neither true nor false");
}

Result<int64_t> Query::Duration(std::string_view name, int64_t maximum_ms) const {
  const auto text = Text(name);
  if (!text) return 0;
  const Result<int64_t> duration = ParseDuration(*text);
  if (!duration || *duration > maximum_ms)
    return Fault(name, "is not a time of at most " + FormatDuration(maximum_ms) + ", like 30s");
  return *duration;
}

}  // namespace caisson::service::http
