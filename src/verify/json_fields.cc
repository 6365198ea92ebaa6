#include "verify/json_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "verify/request_syntax.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

const char* TypeName(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  return "null";
}

std::string ListOf(std::initializer_list<std::string_view> words) {
  std::string list;
  for (const std::string_view word : words) {
    if (!list.empty()) list += ", ";
    list += word;
  }
  return list;
}

Status CheckCount(size_t count, const std::string& path, size_t minimum, size_t maximum) {
  if (count < minimum) return FieldError(path, "must not be empty");
  if (count > maximum) {
    return FieldError(
        path, "holds " + std::to_string(count) + " entries; at most " + std::to_string(maximum) + " are allowed");
  }
  return {};
}

}  // namespace

Error FieldError(const std::string& path, const std::string& problem) {
  return Error::Invalid((path.empty() ? "document" : path) + ": " + problem);
}

Error WrongTypeError(const std::string& path, const char* expected, const json& found) {
  return FieldError(path, std::string("expected ") + expected + ", found " + TypeName(found));
}

Status ExpectObject(const json& value, const std::string& path, std::initializer_list<std::string_view> known) {
  if (!value.is_object()) return WrongTypeError(path, "an object", value);
  for (const auto& member : value.items()) {
    if (std::find(known.begin(), known.end(), member.key()) != known.end()) continue;
    const std::string_view meant = Nearest(member.key(), {known.begin(), known.size()});
    const std::string hint =
        meant.empty() ? "known fields are " + ListOf(known) : "did you mean " + Quoted(meant) + "?";
    return FieldError(PathOfMember(path, member.key()), "unknown field; " + hint);
  }
  return {};
}

Status ExpectMap(const json& value, const std::string& path, size_t max_members) {
  if (!value.is_object()) return WrongTypeError(path, "an object", value);
  return CheckCount(value.size(), path, 0, max_members);
}

Status ExpectArray(const json& value, const std::string& path, size_t min_elements, size_t max_elements) {
  if (!value.is_array()) return WrongTypeError(path, "an array", value);
  return CheckCount(value.size(), path, min_elements, max_elements);
}

const json* FindMember(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

Result<const json*> RequireMember(const json& object, const std::string& path, const char* name) {
  const json* member = FindMember(object, name);
  if (member == nullptr) return FieldError(PathOfMember(path, name), "required field is missing");
  return member;
}

Result<std::string> ReadString(const json& value, const std::string& path) {
  if (!value.is_string()) return WrongTypeError(path, "a string", value);
  return value.get_ref<const std::string&>();
}

Result<std::string> ReadStringWithoutNul(const json& value, const std::string& path) {
  CAISSON_TRY(std::string text, ReadString(value, path));
  if (text.find('\0') != std::string::npos) return FieldError(path, "must not contain a NUL character");
  return text;
}

Result<std::string> ReadText(const json& value, const std::string& path,
                             std::optional<std::string> (*find_fault)(std::string_view)) {
  CAISSON_TRY(std::string text, ReadString(value, path));
  if (const std::optional<std::string> fault = find_fault(text)) return FieldError(path, Quoted(text) + " " + *fault);
  return text;
}

Result<std::string> ReadWord(const json& value, const std::string& path, std::string_view others, size_t max_bytes) {
  CAISSON_TRY(std::string word, ReadString(value, path));
  if (IsWord(word, others, max_bytes)) return word;
  return FieldError(path, Quoted(word) + " must be 1 to " + std::to_string(max_bytes) +
                              " letters, digits or characters of " + Quoted(others));
}

Result<int64_t> ReadInteger(const json& value, const std::string& path, int64_t minimum, int64_t maximum) {
  if (!value.is_number()) return WrongTypeError(path, "an integer", value);
  int64_t number = 0;
  if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else {
    constexpr double kMaxExact = 9007199254740992.0;  // beyond 2^53 the sender may have meant another number
    const auto floating = value.get<double>();
    const bool is_exact = std::floor(floating) == floating && std::abs(floating) <= kMaxExact;
    if (!is_exact) return WrongTypeError(path, "an integer", value);
    number = static_cast<int64_t>(floating);
  }
  if (number < minimum) return FieldError(path, "must be at least " + std::to_string(minimum));
  if (number > maximum) return FieldError(path, "must be at most " + std::to_string(maximum));
  return number;
}

Result<double> ReadNumber(const json& value, const std::string& path) {
  if (!value.is_number()) return WrongTypeError(path, "a number", value);
  return value.get<double>();
}

Result<std::string> ReadSha256(const json& value, const std::string& path) {
  CAISSON_TRY(std::string hash, ReadString(value, path));
  if (!IsSha256Hex(hash) || ToLowerAscii(hash) != hash) {
    return FieldError(path, "must be 64 hexadecimal digits in lower case");
  }
  return hash;
}

Result<std::string> ReadSentence(const json& value, const std::string& path, size_t max_characters) {
  CAISSON_TRY(std::string text, ReadString(value, path));
  size_t characters = 0;
  for (const char c : text) {
    if ((c >= 0 && c < 0x20) || c == 0x7F) return FieldError(path, "must not contain control characters");
    if ((c & 0xC0) != 0x80) ++characters;
  }
  if (characters == 0) return FieldError(path, "must not be empty");
  if (characters <= max_characters) return text;
  return FieldError(path, "takes " + std::to_string(characters) + " characters; at most " +
                              std::to_string(max_characters) + " are allowed");
}

Result<size_t> ReadChoice(const json& value, const std::string& path, std::initializer_list<std::string_view> choices) {
  CAISSON_TRY(const std::string word, ReadString(value, path));
  const auto* found = std::find(choices.begin(), choices.end(), word);
  if (found == choices.end()) return FieldError(path, Quoted(word) + " is not one of " + ListOf(choices));
  return static_cast<size_t>(found - choices.begin());
}

Status ExpectSchemaVersion(const json& value, const std::string& path) {
  if (!value.is_object()) return WrongTypeError(path, "an object", value);
  CAISSON_TRY_VOID(ReadRequired(value, path, "schema_version", ReadInteger, 1, 1));
  return {};
}

Result<size_t> ReadEnvelope(const json& value, const std::string& path, std::initializer_list<std::string_view> kinds) {
  CAISSON_TRY_VOID(ExpectSchemaVersion(value, path));
  return ReadRequired(value, path, "kind", ReadChoice, kinds);
}

}  // namespace caisson::verify
