#include "runtime/engine/root_image.h"

#include <openssl/sha.h>
#include <unistd.h>

#include <climits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/version.h"
#include "client/tar_writer.h"
#include "linux/files.h"
#include "policy/render.h"

namespace caisson::runtime::engine {

namespace {

using nlohmann::json;
using policy::FileKind;
using policy::PlannedFile;

constexpr size_t kMaxAgentBytes = size_t{64} << 20;
#if defined(__x86_64__)
constexpr char kArchitecture[] = "amd64";
#elif defined(__aarch64__)
constexpr char kArchitecture[] = "arm64";
#endif

std::string Sha256(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

PlannedFile Directory(std::string path) { return {std::move(path), "", 0755, FileKind::kDirectory}; }

// Mount points for writable places are not in it: runc gives a file system of memory the mode of the directory that it
// is mounted on.
std::string MakeLayer(std::string agent, const policy::Profile& profile) {
  client::TarWriter tar;
  const std::string inside = policy::kAgentInside + 1;
  tar.Add(Directory(inside.substr(0, inside.rfind('/'))));
  tar.Add({inside, std::move(agent), 0755, FileKind::kRegular});
  for (const char* path : {"dev", "etc", "proc", "run", "sys", "var", "var/cache"}) tar.Add(Directory(path));
  tar.Add({"var/tmp", "/tmp", 0777, FileKind::kSymlink});
  for (const std::string& path : profile.system_paths) {
    char target[PATH_MAX];
    const ssize_t size = ::readlink(path.c_str(), target, sizeof(target));
    if (size > 0 && path.rfind('/') == 0)
      tar.Add({path.substr(1), std::string(target, static_cast<size_t>(size)), 0777, FileKind::kSymlink});
  }
  return std::move(tar).Finish();
}

}  // namespace

Result<RootImage> MakeRootImage(const std::string& agent, const policy::Profile& profile) {
  CAISSON_TRY(std::string program, linux_sys::ReadDocument(agent, kMaxAgentBytes));
  const std::string layer = MakeLayer(std::move(program), profile);
  const std::string layer_hash = Sha256(layer);
  const json configuration = {
      {"architecture", kArchitecture},
      {"os", "linux"},
      {"created", "1970-01-01T00:00:00Z"},
      {"config", {{"Labels", {{"org.caisson.version", kVersion}}}}},
      {"rootfs", {{"type", "layers"}, {"diff_ids", json::array({"sha256:" + layer_hash})}}},
      {"history", json::array({{{"created", "1970-01-01T00:00:00Z"}, {"created_by", "caisson"}}})}};
  const std::string text = configuration.dump();
  const std::string id = Sha256(text);
  const json manifest = json::array({{{"Config", id + ".json"},
                                      {"RepoTags", json::array({"caisson/agent:" + id.substr(0, 12)})},
                                      {"Layers", json::array({layer_hash + "/layer.tar"})}}});
  client::TarWriter tar;
  tar.Add({id + ".json", text, 0644, FileKind::kRegular});
  tar.Add(Directory(layer_hash));
  tar.Add({layer_hash + "/layer.tar", layer, 0644, FileKind::kRegular});
  tar.Add({"manifest.json", manifest.dump(), 0644, FileKind::kRegular});
  return RootImage{"sha256:" + id, std::move(tar).Finish()};
}

}  // namespace caisson::runtime::engine
