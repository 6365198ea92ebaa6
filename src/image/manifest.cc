#include "image/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/words.h"
#include "policy/syntax.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"

namespace caisson::image {
namespace {

using nlohmann::json;
using verify::FieldError;
using verify::FindMember;
using verify::PathOfElement;
using verify::PathOfMember;
using verify::RequireMember;

constexpr int64_t kMaxBlobBytes = int64_t{1} << 40;
constexpr size_t kMaxManifests = 1024;
constexpr size_t kMaxStrings = 4096;
constexpr std::string_view kScheme = "sha256:";

Result<json> ReadObject(std::string_view text) {
  verify::JsonBounds bounds;
  bounds.max_bytes = kMaxDocumentBytes;
  CAISSON_TRY(json document, verify::ReadJson(text, bounds));
  if (!document.is_object()) return verify::WrongTypeError("", "an object", document);
  return document;
}

// A member that may be absent or null, as Go writes empty values.
const json* FindValue(const json& object, const char* name) {
  const json* member = object.is_object() ? FindMember(object, name) : nullptr;
  return member != nullptr && member->is_null() ? nullptr : member;
}

Status ReadText(const json& object, const std::string& path, const char* name, std::string& text) {
  if (const json* member = FindValue(object, name)) {
    CAISSON_TRY(text, verify::ReadStringWithoutNul(*member, PathOfMember(path, name)));
  }
  return {};
}

Result<std::string> ReadDigest(const json& value, const std::string& path) {
  CAISSON_TRY(const std::string digest, verify::ReadString(value, path));
  if (digest.compare(0, kScheme.size(), kScheme) != 0)
    return FieldError(path, "must begin with \"sha256:\"; other algorithms are not checked here");
  return verify::ReadSha256(json(digest.substr(kScheme.size())), path);
}

Result<Blob> ReadBlob(const json& value, const std::string& path) {
  if (!value.is_object()) return verify::WrongTypeError(path, "an object", value);
  Blob blob;
  CAISSON_TRY(const json* digest, RequireMember(value, path, "digest"));
  CAISSON_TRY(blob.sha256, ReadDigest(*digest, PathOfMember(path, "digest")));
  CAISSON_TRY(const json* size, RequireMember(value, path, "size"));
  CAISSON_TRY(blob.size, verify::ReadInteger(*size, PathOfMember(path, "size"), 0, kMaxBlobBytes));
  blob.path = "blobs/sha256/" + blob.sha256;
  return blob;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// A relative path of an archive. Docker's have two components at most, or are blobs.
Result<Blob> ReadPath(const json& value, const std::string& path) {
  Blob blob;
  CAISSON_TRY(blob.path, verify::ReadText(value, path, policy::FaultInFileName));
  constexpr std::string_view kBlobs = "blobs/sha256/";
  std::string_view name = blob.path;
  if (name.substr(0, kBlobs.size()) == kBlobs) name.remove_prefix(kBlobs.size());
  constexpr std::string_view kJson = ".json";
  if (name.size() > kJson.size() && name.substr(name.size() - kJson.size()) == kJson) name.remove_suffix(kJson.size());
  if (policy::IsSha256Hex(name) && name.find_first_of("ABCDEF") == name.npos) blob.sha256 = name;
  return blob;
}

bool IsForThisMachine(const json& platform) {
  const json* system = FindValue(platform, "os");
  const json* machine = FindValue(platform, "architecture");
  return (system == nullptr || *system == "linux") && (machine == nullptr || *machine == ThisArchitecture());
}

Result<std::vector<std::string>> ReadStrings(const json& object, const std::string& path, const char* name) {
  std::vector<std::string> strings;
  const json* list = FindValue(object, name);
  if (list == nullptr) return strings;
  const std::string list_path = PathOfMember(path, name);
  CAISSON_TRY_VOID(verify::ExpectArray(*list, list_path, 0, kMaxStrings));
  for (size_t i = 0; i < list->size(); ++i) {
    CAISSON_TRY(std::string text, verify::ReadStringWithoutNul((*list)[i], PathOfElement(list_path, i)));
    strings.push_back(std::move(text));
  }
  return strings;
}

Status ReadEnvironment(const json& object, const std::string& path, const char* name, Config& config) {
  CAISSON_TRY(const std::vector<std::string> lines, ReadStrings(object, path, name));
  for (const std::string& line : lines) {
    const size_t equals = line.find('=');
    if (equals == 0 || equals == line.npos)
      return FieldError(PathOfMember(path, name), Quoted(line) + " is not NAME=VALUE");
    const std::string key = line.substr(0, equals);
    const auto known = std::find_if(config.env.begin(), config.env.end(),
                                    [&key](const auto& variable) { return variable.first == key; });
    if (known != config.env.end())
      known->second = line.substr(equals + 1);  // the last one counts, as for engines
    else
      config.env.emplace_back(key, line.substr(equals + 1));
  }
  return {};
}

}  // namespace

const char* ThisArchitecture() {
#if defined(__aarch64__)
  return "arm64";
#else
  return "amd64";
#endif
}

Result<std::vector<Choice>> ReadIndex(std::string_view text) {
  CAISSON_TRY(const json index, ReadObject(text));
  CAISSON_TRY(const json* manifests, RequireMember(index, "", "manifests"));
  CAISSON_TRY_VOID(verify::ExpectArray(*manifests, "manifests", 0, kMaxManifests));
  std::vector<Choice> choices;
  for (size_t i = 0; i < manifests->size(); ++i) {
    const json& entry = (*manifests)[i];
    const std::string path = PathOfElement("manifests", i);
    Choice choice;
    CAISSON_TRY(choice.blob, ReadBlob(entry, path));
    std::string type;
    CAISSON_TRY_VOID(ReadText(entry, path, "mediaType", type));
    choice.nested = Contains(type, "image.index") || Contains(type, "manifest.list");
    if (const json* platform = FindValue(entry, "platform"); platform != nullptr && !IsForThisMachine(*platform))
      continue;
    choices.push_back(std::move(choice));
  }
  return choices;
}

Result<Manifest> ReadManifest(std::string_view text) {
  CAISSON_TRY(const json document, ReadObject(text));
  Manifest manifest;
  CAISSON_TRY(const json* config, RequireMember(document, "", "config"));
  CAISSON_TRY(manifest.config, ReadBlob(*config, "config"));
  CAISSON_TRY(const json* layers, RequireMember(document, "", "layers"));
  CAISSON_TRY_VOID(verify::ExpectArray(*layers, "layers", 0, kMaxLayers));
  for (size_t i = 0; i < layers->size(); ++i) {
    const std::string path = PathOfElement("layers", i);
    CAISSON_TRY(Blob layer, ReadBlob((*layers)[i], path));
    std::string type;
    CAISSON_TRY_VOID(ReadText((*layers)[i], path, "mediaType", type));
    if (!Contains(type, "tar") || Contains(type, "encrypted"))
      return FieldError(path, "is not a layer that can be unpacked: " + Quoted(type));
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

Result<Manifest> ReadDockerManifest(std::string_view text) {
  verify::JsonBounds bounds;
  bounds.max_bytes = kMaxDocumentBytes;
  CAISSON_TRY(const json document, verify::ReadJson(text, bounds));
  CAISSON_TRY_VOID(verify::ExpectArray(document, "", 1, kMaxManifests));
  if (document.size() > 1)
    return Error::Invalid("the archive has " + std::to_string(document.size()) + " images; save one of them");
  const std::string path = PathOfElement("", 0);
  if (!document[0].is_object()) return verify::WrongTypeError(path, "an object", document[0]);
  Manifest manifest;
  CAISSON_TRY(const json* config, RequireMember(document[0], path, "Config"));
  CAISSON_TRY(manifest.config, ReadPath(*config, PathOfMember(path, "Config")));
  CAISSON_TRY(const json* layers, RequireMember(document[0], path, "Layers"));
  const std::string layers_path = PathOfMember(path, "Layers");
  CAISSON_TRY_VOID(verify::ExpectArray(*layers, layers_path, 0, kMaxLayers));
  for (size_t i = 0; i < layers->size(); ++i) {
    CAISSON_TRY(Blob layer, ReadPath((*layers)[i], PathOfElement(layers_path, i)));
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

Result<ConfigDocument> ReadConfig(std::string_view text) {
  CAISSON_TRY(const json document, ReadObject(text));
  if (!IsForThisMachine(document)) {
    std::string system = "linux", machine;
    CAISSON_TRY_VOID(ReadText(document, "", "os", system));
    CAISSON_TRY_VOID(ReadText(document, "", "architecture", machine));
    return Error::Invalid("the image is for " + Quoted(system + "/" + machine) + ", this machine is linux/" +
                          ThisArchitecture());
  }
  ConfigDocument read;
  CAISSON_TRY(const json* root, RequireMember(document, "", "rootfs"));
  if (!root->is_object()) return verify::WrongTypeError("rootfs", "an object", *root);
  if (const json* layers = FindValue(*root, "diff_ids")) {
    CAISSON_TRY_VOID(verify::ExpectArray(*layers, "rootfs.diff_ids", 0, kMaxLayers));
    for (size_t i = 0; i < layers->size(); ++i) {
      CAISSON_TRY(std::string hash, ReadDigest((*layers)[i], PathOfElement("rootfs.diff_ids", i)));
      read.unpacked_layers.push_back(std::move(hash));
    }
  }
  const json* config = FindValue(document, "config");
  if (config == nullptr) return read;
  if (!config->is_object()) return verify::WrongTypeError("config", "an object", *config);
  CAISSON_TRY_VOID(ReadEnvironment(*config, "config", "Env", read.config));
  CAISSON_TRY_VOID(ReadText(*config, "config", "WorkingDir", read.config.working_directory));
  CAISSON_TRY(read.config.entrypoint, ReadStrings(*config, "config", "Entrypoint"));
  CAISSON_TRY(read.config.command, ReadStrings(*config, "config", "Cmd"));
  CAISSON_TRY_VOID(ReadText(*config, "config", "User", read.config.user));
  return read;
}

std::string Canonical(const Config& config) {
  json env = json::array();
  for (const auto& [key, value] : config.env) env.push_back(key + "=" + value);
  const json document = {{"command", config.command},
                         {"entrypoint", config.entrypoint},
                         {"env", std::move(env)},
                         {"user", config.user},
                         {"working_directory", config.working_directory}};
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Config> ReadCanonical(std::string_view text) {
  CAISSON_TRY(const json document, ReadObject(text));
  Config config;
  CAISSON_TRY_VOID(ReadEnvironment(document, "", "env", config));
  CAISSON_TRY(config.command, ReadStrings(document, "", "command"));
  CAISSON_TRY(config.entrypoint, ReadStrings(document, "", "entrypoint"));
  CAISSON_TRY_VOID(ReadText(document, "", "user", config.user));
  CAISSON_TRY_VOID(ReadText(document, "", "working_directory", config.working_directory));
  return config;
}

}  // namespace caisson::image
