// Percent-encoding, as the paths and queries of URLs use it (RFC 3986).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace caisson {

// Nothing for a malformed escape, a NUL, or bytes that are not UTF-8. In a query, "+" is a blank.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space = false);

// Everything but letters, digits and -._~ escaped.
std::string PercentEncode(std::string_view text);

}  // namespace caisson
