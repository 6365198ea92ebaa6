#include "base/utf8.h"

#include "base/check.h"

namespace caisson {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The bytes that may follow a lead byte: the number of continuation bytes, and the range of the first one. The narrowed
// ranges exclude overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  int continuations;
  unsigned char low;
  unsigned char high;
};

Lead ClassifyLead(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

// SECURITY: code points that can reorder, hide or break a line although they are not ASCII control characters.
// U+061C, U+200E and U+200F are bidirectional marks; U+2028 and U+2029 are line ends to some terminals.
bool ReordersOrBreaksLines(char32_t code_point) {
  return (code_point >= 0x202A && code_point <= 0x202E) || (code_point >= 0x2066 && code_point <= 0x2069) ||
         code_point == 0x061C || code_point == 0x200E || code_point == 0x200F || code_point == 0x2028 ||
         code_point == 0x2029;
}

void AppendByteEscape(unsigned char byte, std::string& out) {
  out += "\\x";
  out += kHexDigits[byte >> 4];
  out += kHexDigits[byte & 0xF];
}

void AppendCodePointEscape(char32_t code_point, std::string& out) {
  out += "\\u{";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHexDigits[(code_point >> shift) & 0xF];
  out += '}';
}

}  // namespace

DecodedCodePoint DecodeUtf8(std::string_view text) {
  CAISSON_CHECK(!text.empty());
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = ClassifyLead(first);
  if (lead.continuations == 0) return {0, 1, false};
  char32_t code_point = first & (0x3Fu >> lead.continuations);
  for (int i = 1; i <= lead.continuations; ++i) {
    const auto index = static_cast<size_t>(i);
    if (index >= text.size()) return {0, index, false};
    const auto byte = static_cast<unsigned char>(text[index]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {0, index, false};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {code_point, static_cast<size_t>(lead.continuations) + 1, true};
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const DecodedCodePoint next = DecodeUtf8(text);
    if (!next.valid) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const DecodedCodePoint next = DecodeUtf8(text);
    out += next.valid ? text.substr(0, next.length) : kReplacement;
    text.remove_prefix(next.length);
  }
  return out;
}

std::string EscapeForTerminal(std::string_view text, LineBreaks line_breaks) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const DecodedCodePoint next = DecodeUtf8(text);
    const std::string_view bytes = text.substr(0, next.length);
    const bool kept_break = line_breaks == LineBreaks::kKeep && (bytes == "\n" || bytes == "\t");
    if (!next.valid) {
      for (const char byte : bytes) AppendByteEscape(static_cast<unsigned char>(byte), out);
    } else if (!kept_break && (next.code_point < 0x20 || next.code_point == 0x7F)) {
      AppendByteEscape(static_cast<unsigned char>(next.code_point), out);
    } else if ((next.code_point >= 0x80 && next.code_point <= 0x9F) || ReordersOrBreaksLines(next.code_point)) {
      AppendCodePointEscape(next.code_point, out);
    } else {
      out += bytes;
    }
    text.remove_prefix(next.length);
  }
  return out;
}

}  // namespace caisson
