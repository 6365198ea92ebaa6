#include "base/units.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/utf8.h"

namespace caisson {
namespace {

struct Unit {
  std::string_view name;  // lower case
  int64_t factor;
};

constexpr Unit kSizeUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", int64_t{1} << 10},
    {"kb", int64_t{1} << 10},
    {"kib", int64_t{1} << 10},
    {"m", int64_t{1} << 20},
    {"mb", int64_t{1} << 20},
    {"mib", int64_t{1} << 20},
    {"g", int64_t{1} << 30},
    {"gb", int64_t{1} << 30},
    {"gib", int64_t{1} << 30},
    {"t", int64_t{1} << 40},
    {"tb", int64_t{1} << 40},
    {"tib", int64_t{1} << 40},
};
constexpr Unit kDurationUnits[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};
constexpr Unit kCpuUnits[] = {{"", 1000}, {"m", 1}};
constexpr Unit kCountUnits[] = {{"", 1}};

constexpr char kSizeExamples[] = "write a size such as 512M, 1.5G, 64KiB or 1048576";
constexpr char kDurationExamples[] = "write a duration such as 30s, 500ms, 2m, 1h or 45 (seconds)";
constexpr char kCpuExamples[] = "write a number of CPUs such as 2, 1.5 or 500m (thousandths)";
constexpr char kCountExamples[] = "write a whole number such as 256";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

size_t CountDigits(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && IsDigit(text[count])) ++count;
  return count;
}

// Errors quote the text, so it is cut and escaped.
Error BadQuantity(std::string_view text, std::string_view problem, std::string_view examples) {
  constexpr size_t kMaxQuoted = 64;
  std::string message = "\"" + EscapeForTerminal(text.substr(0, kMaxQuoted));
  if (text.size() > kMaxQuoted) message += "...";
  message += "\": ";
  message += problem;
  message += "; ";
  message += examples;
  return Error::Invalid(std::move(message));
}

template <size_t N>
const Unit* FindUnit(const Unit (&units)[N], std::string_view name, bool ignore_case) {
  for (const Unit& unit : units) {
    const auto same = [ignore_case](char known, char given) {
      return known == given || (ignore_case && given >= 'A' && given <= 'Z' && known == given - 'A' + 'a');
    };
    if (std::equal(unit.name.begin(), unit.name.end(), name.begin(), name.end(), same)) return &unit;
  }
  return nullptr;
}

struct Number {
  std::string_view whole;     // digits; empty for ".5"
  std::string_view fraction;  // digits after the point; empty when there is none
  std::string_view rest;      // what follows: the unit
};

std::optional<Number> SplitNumber(std::string_view text) {
  Number number;
  number.whole = text.substr(0, CountDigits(text));
  number.rest = text.substr(number.whole.size());
  if (!number.rest.empty() && number.rest[0] == '.') {
    number.rest.remove_prefix(1);
    number.fraction = number.rest.substr(0, CountDigits(number.rest));
    if (number.fraction.empty()) return std::nullopt;
    number.rest.remove_prefix(number.fraction.size());
  }
  if (number.whole.empty() && number.fraction.empty()) return std::nullopt;
  return number;
}

std::optional<int64_t> ScaleWhole(std::string_view digits, int64_t factor) {
  int64_t value = 0;
  for (const char digit : digits) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, int64_t{digit - '0'}, &value)) return std::nullopt;
  }
  if (__builtin_mul_overflow(value, factor, &value)) return std::nullopt;
  return value;
}

// 0.<digits> * factor, rounded down, in whole numbers: nested floors of a division by ten equal one floor of the whole,
// so no digit count can overflow and no binary fraction can round. Sets `exact` to whether nothing was lost.
int64_t ScaleFraction(std::string_view digits, int64_t factor, bool& exact) {
  int64_t value = 0;
  exact = true;
  for (size_t i = digits.size(); i-- > 0;) {
    const int64_t scaled = (digits[i] - '0') * factor + value;
    exact = exact && scaled % 10 == 0;
    value = scaled / 10;
  }
  return value;
}

enum class Precision { kRoundDown, kExact };

template <size_t N>
Result<int64_t> ParseQuantity(std::string_view text, const Unit (&units)[N], bool ignore_case, Precision precision,
                              const char* examples) {
  if (text.empty()) return BadQuantity(text, "is empty", examples);
  if (text[0] == '-') return BadQuantity(text, "must not be negative", examples);
  const std::optional<Number> number = SplitNumber(text);
  if (!number) return BadQuantity(text, "is not a number", examples);
  const Unit* unit = FindUnit(units, number->rest, ignore_case);
  if (unit == nullptr) return BadQuantity(text, "has an unknown unit or something after the number", examples);
  const std::optional<int64_t> whole = ScaleWhole(number->whole, unit->factor);
  if (!whole) return BadQuantity(text, "is too large", examples);
  bool exact = true;
  const int64_t fraction = ScaleFraction(number->fraction, unit->factor, exact);
  const bool indivisible = unit->factor == 1 || precision == Precision::kExact;
  if (!exact && indivisible) return BadQuantity(text, "is finer than can be honoured", examples);
  int64_t value = 0;
  if (__builtin_add_overflow(*whole, fraction, &value)) return BadQuantity(text, "is too large", examples);
  return value;
}

std::string WithOneDecimal(uint64_t tenths) {
  std::string text = std::to_string(tenths / 10);
  if (tenths % 10 != 0) text += "." + std::to_string(tenths % 10);
  return text;
}

// The magnitude, also of the one value that has no positive counterpart.
uint64_t Magnitude(int64_t value) {
  return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

}  // namespace

Result<int64_t> ParseSize(std::string_view text) {
  return ParseQuantity(text, kSizeUnits, /*ignore_case=*/true, Precision::kRoundDown, kSizeExamples);
}

// Units of time keep their case: a capital M reads as megabytes or months, not as minutes.
Result<int64_t> ParseDuration(std::string_view text) {
  return ParseQuantity(text, kDurationUnits, /*ignore_case=*/false, Precision::kExact, kDurationExamples);
}

Result<int64_t> ParseCpus(std::string_view text) {
  return ParseQuantity(text, kCpuUnits, /*ignore_case=*/false, Precision::kExact, kCpuExamples);
}

Result<int64_t> ParseCount(std::string_view text) {
  if (text.find('.') != std::string_view::npos) return BadQuantity(text, "is not a whole number", kCountExamples);
  return ParseQuantity(text, kCountUnits, /*ignore_case=*/false, Precision::kExact, kCountExamples);
}

std::string FormatSize(int64_t bytes) {
  constexpr std::array<const char*, 7> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const std::string sign = bytes < 0 ? "-" : "";
  const uint64_t magnitude = Magnitude(bytes);
  if (magnitude < 1024) return sign + std::to_string(magnitude) + " B";
  size_t index = 1;
  while (index + 1 < kNames.size() && (magnitude >> (10 * (index + 1))) != 0) ++index;
  const auto tenths_at = [magnitude](size_t power) {
    const uint64_t unit = uint64_t{1} << (10 * power);
    const uint64_t whole = magnitude / unit;
    return whole * 10 + (magnitude % unit * 10 + unit / 2) / unit;
  };
  uint64_t tenths = tenths_at(index);
  // 1023.96 KiB rounds to 1024.0 KiB, which people call 1 MiB.
  if (tenths >= 10'240 && index + 1 < kNames.size()) tenths = tenths_at(++index);
  return sign + WithOneDecimal(tenths) + " " + kNames[index];
}

std::string FormatDuration(int64_t milliseconds) {
  const std::string sign = milliseconds < 0 ? "-" : "";
  const uint64_t ms = Magnitude(milliseconds);
  if (ms < 1000) return sign + std::to_string(ms) + " ms";
  if (ms < 60'000) return sign + WithOneDecimal(ms / 100) + " s";
  const uint64_t seconds = ms / 1000;
  const uint64_t minutes = seconds / 60;
  if (minutes < 60) {
    const std::string rest = seconds % 60 != 0 ? " " + std::to_string(seconds % 60) + " s" : "";
    return sign + std::to_string(minutes) + " min" + rest;
  }
  const std::string rest = minutes % 60 != 0 ? " " + std::to_string(minutes % 60) + " min" : "";
  return sign + std::to_string(minutes / 60) + " h" + rest;
}

}  // namespace caisson
