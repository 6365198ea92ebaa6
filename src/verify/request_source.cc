#include "verify/request_source.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::verify {
using nlohmann::json;

Result<std::string> ReadFileBytes(const json& value, const std::string& path) {
  if (value.is_string()) return ReadString(value, path);
  if (!value.is_object()) return WrongTypeError(path, "a string or an object {base64}", value);
  CAISSON_TRY_VOID(ExpectObject(value, path, {"base64"}));
  CAISSON_TRY(const json* encoded, RequireMember(value, path, "base64"));
  CAISSON_TRY(const std::string text, ReadString(*encoded, PathOfMember(path, "base64")));
  std::optional<std::string> bytes = DecodeBase64(text);
  if (!bytes) return FieldError(PathOfMember(path, "base64"), "is not base64 (RFC 4648, padded, without blanks)");
  return *std::move(bytes);
}

Result<std::vector<SourceFile>> ReadFiles(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectMap(value, path, std::numeric_limits<size_t>::max()));
  if (value.empty()) return FieldError(path, "must hold at least one file");
  std::vector<SourceFile> files;
  files.reserve(value.size());
  for (const auto& member : value.items()) {
    const std::string member_path = PathOfMember(path, member.key());
    if (const Fault fault = FaultInFileName(member.key())) return FieldError(member_path, "the file name " + *fault);
    CAISSON_TRY(std::string bytes, ReadFileBytes(member.value(), member_path));
    files.push_back({member.key(), std::move(bytes)});
  }
  std::vector<std::string_view> names;
  names.reserve(files.size());
  for (const SourceFile& file : files) names.push_back(file.name);
  if (const std::optional<NameClash> clash = FindFileUsedAsDirectory(std::move(names))) {
    return FieldError(PathOfMember(path, clash->file),
                      "is a file, but " + Quoted(clash->below) + " needs a directory there");
  }
  return files;
}

namespace {

Status ReadArchive(const json& value, const std::string& path, Source& source) {
  constexpr std::string_view kScheme = "sha256:";
  std::string hash;
  if (value.is_object()) {
    CAISSON_TRY_VOID(ExpectObject(value, path, {"sha256", "format"}));
    CAISSON_TRY(const json* member, RequireMember(value, path, "sha256"));
    CAISSON_TRY(hash, ReadString(*member, PathOfMember(path, "sha256")));
    if (!IsSha256Hex(hash)) return FieldError(PathOfMember(path, "sha256"), "must be 64 hexadecimal digits");
    if (const json* format = FindMember(value, "format")) {
      CAISSON_TRY(const size_t choice, ReadChoice(*format, PathOfMember(path, "format"), {"tar", "zip"}));
      source.archive_format = choice == 0 ? "tar" : "zip";
    }
  } else {
    if (!value.is_string()) return WrongTypeError(path, "a string or an object {sha256, format}", value);
    CAISSON_TRY(const std::string text, ReadString(value, path));
    hash = text.substr(std::min(kScheme.size(), text.size()));
    if (text.substr(0, kScheme.size()) != kScheme || !IsSha256Hex(hash)) {
      return FieldError(path, Quoted(text) + " must be \"sha256:\" and 64 hexadecimal digits");
    }
  }
  source.archive = std::string(kScheme) + ToLowerAscii(std::move(hash));
  return {};
}

}  // namespace

Result<Source> ReadSource(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"path", "files", "archive"}));
  if (value.size() != 1) {
    return FieldError(path, "needs exactly one of path, files and archive; found " + std::to_string(value.size()));
  }
  Source source;
  if (const json* member = FindMember(value, "path")) {
    CAISSON_TRY(source.path, ReadText(*member, PathOfMember(path, "path"), FaultInPath));
  }
  if (const json* member = FindMember(value, "files")) {
    CAISSON_TRY(source.files, ReadFiles(*member, PathOfMember(path, "files")));
  }
  if (const json* member = FindMember(value, "archive")) {
    CAISSON_TRY_VOID(ReadArchive(*member, PathOfMember(path, "archive"), source));
  }
  return source;
}

}  // namespace caisson::verify
