#include "service/http/target.h"

#include <algorithm>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"

namespace caisson::service::http {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Error Fault(std::string_view name, const std::string& what) { return Error::Invalid(std::string(name) + ": " + what); }

}  // namespace

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || HexDigit(text[i + 1]) < 0 || HexDigit(text[i + 2]) < 0) return std::nullopt;
      c = static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    decoded += c;
  }
  if (!IsValidUtf8(decoded)) return std::nullopt;
  return decoded;
}

std::string PercentEncode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    if (plain) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += "0123456789ABCDEF"[static_cast<unsigned char>(c) >> 4];
      encoded += "0123456789ABCDEF"[static_cast<unsigned char>(c) & 15];
    }
  }
  return encoded;
}

Result<Query> Query::Parse(std::string_view text, const std::vector<std::string_view>& known) {
  Query query;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const auto name = PercentDecode(part.substr(0, equals), true);
    const auto value = equals == std::string_view::npos ? std::optional<std::string>("")
                                                        : PercentDecode(part.substr(equals + 1), true);
    if (!name || !value) return Error::Invalid("query: an escape that stands for no UTF-8 text");
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
