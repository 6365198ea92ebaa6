#include "base/percent.h"

#include "base/utf8.h"

namespace caisson {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> PercentDecodeBytes(std::string_view text, bool plus_is_space) {
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
  return decoded;
}

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::optional<std::string> decoded = PercentDecodeBytes(text, plus_is_space);
  if (decoded && !IsValidUtf8(*decoded)) return std::nullopt;
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

}  // namespace caisson
