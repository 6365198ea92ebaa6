#include "network/name.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/utf8.h"
#include "network/public_suffixes.h"

namespace caisson::network {
namespace {

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// True for a label that old address parsers (inet_aton) read as a number: digits, or 0x and hex digits.
bool IsNumber(std::string_view label) {
  const bool hex = label.size() >= 2 && label[0] == '0' && label[1] == 'x';
  const std::string_view digits = label.substr(hex ? 2 : 0);
  return std::all_of(digits.begin(), digits.end(),
                     [hex](char c) { return (c >= '0' && c <= '9') || (hex && c >= 'a' && c <= 'f'); });
}

// RFC 3492 with the parameters of IDNA. Returns an empty string when the label is not UTF-8 or too long to encode.
std::string Punycode(std::string_view label) {
  std::vector<uint32_t> points;
  std::string out;
  while (!label.empty()) {
    const DecodedCodePoint decoded = DecodeUtf8(label);
    if (!decoded.valid || points.size() > kMaxLabelBytes) return {};
    points.push_back(decoded.code_point);
    if (decoded.code_point < 0x80) out.push_back(Lower(static_cast<char>(decoded.code_point)));
    label.remove_prefix(decoded.length);
  }
  const size_t basic = out.size();
  if (basic == points.size()) return out;
  if (basic > 0) out.push_back('-');
  constexpr uint32_t kBase = 36, kMin = 1, kMax = 26, kSkew = 38, kDamp = 700;
  uint32_t next = 128, delta = 0, bias = 72, handled = static_cast<uint32_t>(basic);
  while (handled < points.size()) {
    uint32_t least = UINT32_MAX;
    for (const uint32_t point : points) least = point >= next ? std::min(least, point) : least;
    delta += (least - next) * (handled + 1);  // at most 0x110000 * 65
    next = least;
    for (const uint32_t point : points) {
      if (point < next) ++delta;
      if (point != next) continue;
      uint32_t rest = delta;
      for (uint32_t k = kBase;; k += kBase) {
        const uint32_t threshold = k <= bias ? kMin : k >= bias + kMax ? kMax : k - bias;
        if (rest < threshold) break;
        const uint32_t digit = threshold + (rest - threshold) % (kBase - threshold);
        out.push_back(static_cast<char>(digit < 26 ? 'a' + digit : '0' + digit - 26));
        rest = (rest - threshold) / (kBase - threshold);
      }
      out.push_back(static_cast<char>(rest < 26 ? 'a' + rest : '0' + rest - 26));
      uint32_t adapted = handled == basic ? delta / kDamp : delta / 2;
      adapted += adapted / (handled + 1);
      uint32_t k = 0;
      for (; adapted > (kBase - kMin) * kMax / 2; k += kBase) adapted /= kBase - kMin;
      bias = k + (kBase - kMin + 1) * adapted / (adapted + kSkew);
      delta = 0;
      ++handled;
    }
    ++delta;
    ++next;
  }
  return "xn--" + out;
}

Error NotAscii(std::string_view text) {
  std::string suggestion;
  for (size_t from = 0; from <= text.size();) {
    const size_t dot = std::min(text.find('.', from), text.size());
    const std::string label = Punycode(text.substr(from, dot - from));
    const bool usable = !label.empty() && std::all_of(label.begin(), label.end(), [](char c) {
      return IsLetterOrDigit(c) || c == '-' || c == '_';
    });
    if (!usable) return Error::Invalid("has bytes that are no letters, digits, '-' or '_'");
    suggestion += (suggestion.empty() ? "" : ".") + label;
    from = dot + 1;
  }
  return Error::Invalid("has letters that are not ASCII; write its punycode form: " + suggestion);
}

}  // namespace

Result<std::string> NormalizeName(std::string_view text) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    return NotAscii(text.substr(0, kMaxNameBytes));
  if (!text.empty() && text.back() == '.') text.remove_suffix(1);
  if (text.empty()) return Error::Invalid("has no name");
  if (text.size() > kMaxNameBytes) return Error::Invalid("is longer than 253 bytes");
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), Lower);
  size_t from = 0;
  for (;;) {
    const size_t dot = std::min(name.find('.', from), name.size());
    const std::string_view label = std::string_view(name).substr(from, dot - from);
    if (label.empty()) return Error::Invalid("has an empty label");
    if (label.size() > kMaxLabelBytes) return Error::Invalid("has a label longer than 63 bytes");
    if (!std::all_of(label.begin(), label.end(), [](char c) { return IsLetterOrDigit(c) || c == '-' || c == '_'; }))
      return Error::Invalid("has bytes that are no letters, digits, '-' or '_'");
    if (label.front() == '-' || label.back() == '-') return Error::Invalid("has a label that begins or ends with '-'");
    if (dot == name.size()) {
      if (IsNumber(label)) return Error::Invalid("looks like an IP address but is not a plain dotted quad");
      return name;
    }
    from = dot + 1;
  }
}

bool IsAtOrBelow(std::string_view name, std::string_view domain) {
  if (name.size() < domain.size() || name.substr(name.size() - domain.size()) != domain) return false;
  return name.size() == domain.size() || name[name.size() - domain.size() - 1] == '.';
}

bool IsPublicSuffix(std::string_view name) {
  if (name.find('.') == std::string_view::npos) return true;
  return std::find(std::begin(kPublicSuffixes), std::end(kPublicSuffixes), name) != std::end(kPublicSuffixes);
}

}  // namespace caisson::network
