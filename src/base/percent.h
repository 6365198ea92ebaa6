// Percent-encoding, as the paths and queries of URLs use it (RFC 3986).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace caisson {

// Nothing for a malformed escape, a NUL, or bytes that are not UTF-8. In a query, "+" is a blank.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space = false);

// The same for bytes that need not be UTF-8, such as the names of files.
std::optional<std::string> PercentDecodeBytes(std::string_view text, bool plus_is_space = false);

// Escapes everything except letters, digits and -._~.
std::string PercentEncode(std::string_view text);

}  // namespace caisson
