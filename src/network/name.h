// Host names in the one form in which rules, DNS questions, TLS and HTTP are compared: lower case, without the trailing
// dot, letters, digits, '-' and '_' only. Two spellings of one name are equal after NormalizeName, which refuses every
// name without such a form, so spelling cannot trick a later comparison.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace caisson::network {

inline constexpr size_t kMaxNameBytes = 253;
inline constexpr size_t kMaxLabelBytes = 63;

// The error completes a sentence that begins with the text: "has an empty label". A name with non-ASCII letters is
// refused, and the error suggests its punycode form. A name whose last label is a number is refused, because programs
// read "127.1" and "0x7f.1" as addresses.
Result<std::string> NormalizeName(std::string_view text);

// True when `name` is `domain` or a name below it. Both are normalized.
bool IsAtOrBelow(std::string_view name, std::string_view domain);

// True for a name below which independent parties register their own names: "com", "co.uk", "github.io". A wildcard
// there would allow hosts of any of these parties, so rules refuse it. `name` is normalized.
bool IsPublicSuffix(std::string_view name);

}  // namespace caisson::network
