#include "session/json_bytes.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "policy/syntax.h"
#include "verify/json_fields.h"

namespace caisson::session {

namespace {

std::string EncodeBase64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

}  // namespace

nlohmann::json BytesToJson(std::string_view bytes) {
  if (IsValidUtf8(bytes)) return std::string(bytes);
  return {{"base64", EncodeBase64(bytes)}};
}

Result<std::string> BytesFromJson(const nlohmann::json& value, const std::string& path) {
  if (value.is_string()) return verify::ReadStringWithoutNul(value, path);
  CAISSON_TRY_VOID(verify::ExpectObject(value, path, {"base64"}));
  CAISSON_TRY(const std::string text, verify::ReadRequired(value, path, "base64", verify::ReadString));
  std::optional<std::string> bytes = policy::DecodeBase64(text);
  if (!bytes) return verify::FieldError(path, "is not base64");
  if (bytes->find('\0') != std::string::npos) return verify::FieldError(path, "holds a NUL");
  return *std::move(bytes);
}

nlohmann::json BytesToJson(const std::vector<std::string>& items) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& item : items) list.push_back(BytesToJson(std::string_view(item)));
  return list;
}

Result<std::vector<std::string>> BytesListFromJson(const nlohmann::json& value, const std::string& path,
                                                   size_t most_items) {
  CAISSON_TRY_VOID(verify::ExpectArray(value, path, 0, most_items));
  std::vector<std::string> items;
  for (size_t i = 0; i < value.size(); ++i) {
    CAISSON_TRY(std::string item, BytesFromJson(value[i], verify::PathOfElement(path, i)));
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace caisson::session
