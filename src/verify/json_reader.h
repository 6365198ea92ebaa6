// Strict JSON: a document is accepted completely or refused with the place of its first fault. Beyond RFC 8259 the
// reader refuses constructs that JSON parsers treat differently, because two parsers of one request must never see two
// requests: duplicate keys, byte order marks, raw NUL bytes, numbers that do not fit, lone surrogates and invalid
// UTF-8. Size, depth and the number of values are bounded, so that a small document cannot grow into a large tree.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/words.h"

namespace caisson::verify {

struct JsonBounds {
  size_t max_bytes = size_t{1} << 20;
  size_t max_depth = 32;          // arrays and objects inside one another
  size_t max_values = 1'000'000;  // an empty object takes two bytes of text and some eighty of memory
};

// Errors are ErrorKind::kInvalid. Syntax errors begin with "line 3, column 7: ", all others with the path of the value
// ("limits.cpu: ") or, for the document itself, with "document: ". Integers in the result fit an int64_t.
Result<nlohmann::json> ReadJson(std::string_view text, const JsonBounds& bounds);

// The path of a member or element: ("limits", "cpu") -> "limits.cpu", ("files", "a/b") -> `files["a/b"]`,
// ("checks", 1) -> "checks[1]". Keys are shortened and escaped: they may be hostile.
std::string PathOfMember(std::string_view parent, std::string_view key);
std::string PathOfElement(std::string_view parent, size_t index);

}  // namespace caisson::verify
