// Typed access to a JSON tree for readers of untrusted documents. Every function gets the path of its value and puts it
// in front of its error: "limits.cpu: expected a number, found a string".
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "verify/json_reader.h"

namespace caisson::verify {

// An error about the value at `path`.
Error FieldError(const std::string& path, const std::string& problem);

// Names the expected type ("a string") and the one found.
Error WrongTypeError(const std::string& path, const char* expected, const nlohmann::json& found);

// `value` must be an object with no members but those `known`. The error names an unknown member, and the field that
// was probably meant.
Status ExpectObject(const nlohmann::json& value, const std::string& path,
                    std::initializer_list<std::string_view> known);
// `value` must be an object; the caller chooses its keys.
Status ExpectMap(const nlohmann::json& value, const std::string& path, size_t max_members);
Status ExpectArray(const nlohmann::json& value, const std::string& path, size_t min_elements, size_t max_elements);

// A member of an object, or null when it is absent. A JSON null counts as present, but no field accepts its type.
const nlohmann::json* FindMember(const nlohmann::json& object, const char* name);
Result<const nlohmann::json*> RequireMember(const nlohmann::json& object, const std::string& path, const char* name);

Result<std::string> ReadString(const nlohmann::json& value, const std::string& path);
// A string that the kernel or another program will see as a C string.
Result<std::string> ReadStringWithoutNul(const nlohmann::json& value, const std::string& path);
// A string in which `find_fault` finds no fault. The fault completes a sentence that begins with the quoted string.
Result<std::string> ReadText(const nlohmann::json& value, const std::string& path,
                             std::optional<std::string> (*find_fault)(std::string_view));
// A string of 1 to `max_bytes` ASCII letters, digits and `others`.
Result<std::string> ReadWord(const nlohmann::json& value, const std::string& path, std::string_view others,
                             size_t max_bytes);
// A whole number; 2.0 and 1e3 count, as they do in JSON Schema.
Result<int64_t> ReadInteger(const nlohmann::json& value, const std::string& path, int64_t minimum, int64_t maximum);
Result<double> ReadNumber(const nlohmann::json& value, const std::string& path);
// 64 hexadecimal digits in lower case.
Result<std::string> ReadSha256(const nlohmann::json& value, const std::string& path);
// 1 to `max_characters` code points without control characters, so that it stays on one line wherever it is shown.
Result<std::string> ReadSentence(const nlohmann::json& value, const std::string& path, size_t max_characters);

// The index of the string in `choices`.
Result<size_t> ReadChoice(const nlohmann::json& value, const std::string& path,
                          std::initializer_list<std::string_view> choices);

// The member `name` of an object, read by one of the functions above or one like them: the first two parameters of
// `read` are the value and its path, `arguments` are the rest.
//
//   CAISSON_TRY(job.tenant, ReadRequired(value, path, "tenant", ReadWord, "._-", 64));
template <typename Read, typename... Arguments>
auto ReadRequired(const nlohmann::json& object, const std::string& path, const char* name, Read read,
                  Arguments&&... arguments) -> decltype(read(object, path, arguments...)) {
  CAISSON_TRY(const nlohmann::json* member, RequireMember(object, path, name));
  return read(*member, PathOfMember(path, name), std::forward<Arguments>(arguments)...);
}

// The same; `field` keeps its value when the member is absent.
template <typename Field, typename Read, typename... Arguments>
Status ReadOptional(const nlohmann::json& object, const std::string& path, const char* name, Field& field, Read read,
                    Arguments&&... arguments) {
  const nlohmann::json* member = FindMember(object, name);
  if (member == nullptr) return {};
  CAISSON_TRY(field, read(*member, PathOfMember(path, name), std::forward<Arguments>(arguments)...));
  return {};
}

// Checks the common start of the service's documents: `value` is an object of schema_version 1 whose `kind` is one of
// `kinds`. The version is checked first, because other members may mean something else in another version. Returns the
// index of the kind.
Result<size_t> ReadEnvelope(const nlohmann::json& value, const std::string& path,
                            std::initializer_list<std::string_view> kinds);
Status ExpectSchemaVersion(const nlohmann::json& value, const std::string& path);

}  // namespace caisson::verify
