// Untrusted UTF-8: checks that it is well-formed, repairs it, and makes it safe for a terminal.
//
// Names, output and messages of a workload are hostile text. Whatever reaches a terminal goes through
// EscapeForTerminal; whatever reaches a JSON document goes through ReplaceInvalidUtf8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace caisson {

// One step of reading UTF-8.
struct DecodedCodePoint {
  char32_t code_point = 0;  // meaningless unless `valid`
  size_t length = 0;        // bytes to move on; when not `valid`, the maximal subpart of an ill-formed sequence
  bool valid = false;
};

// Decodes the first code point of `text`, which must not be empty. Surrogates, overlong forms and values above
// U+10FFFF are ill-formed (Unicode 15, table 3-7).
DecodedCodePoint DecodeUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);

// `text` with U+FFFD in place of each maximal subpart of an ill-formed sequence, as web browsers do.
std::string ReplaceInvalidUtf8(std::string_view text);

enum class LineBreaks {
  kEscape,  // for names: newline and tab become visible too, so that one name stays on one line
  kKeep,    // for texts: newline and tab pass; everything else is treated alike
};

// `text` as printable UTF-8. Control characters, invalid bytes (\xNN), C1 controls, code points that reorder or break
// lines (\u{NNNN}) are made visible. For display only: a backslash is not doubled, so the result cannot be converted
// back.
std::string EscapeForTerminal(std::string_view text, LineBreaks line_breaks = LineBreaks::kEscape);

}  // namespace caisson
