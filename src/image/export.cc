#include "image/export.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "base/words.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "verify/digest.h"

namespace caisson::image {
namespace {

using nlohmann::json;

constexpr size_t kBlock = 512;
constexpr size_t kMaxListingBytes = size_t{1} << 30;

// Writes a tar file to a descriptor, in GNU's format, and hashes it.
class TarFile {
 public:
  explicit TarFile(int fd) : fd_(fd) {}

  Status Begin(char type, const std::string& name, const std::string& target, unsigned mode, uint64_t size,
               int64_t time) {
    constexpr size_t kShort = 100;
    if (name.size() > kShort) CAISSON_TRY_VOID(AddText('L', "././@LongLink", name + '\0'));
    if (target.size() > kShort) CAISSON_TRY_VOID(AddText('K', "././@LongLink", target + '\0'));
    char header[kBlock] = {};
    std::memcpy(header, name.data(), std::min(name.size(), kShort));
    std::snprintf(header + 100, 8, "%07o", mode & 07777);
    std::snprintf(header + 108, 8, "%07o", 0);
    std::snprintf(header + 116, 8, "%07o", 0);
    std::snprintf(header + 124, 12, "%011llo", static_cast<unsigned long long>(size));
    std::snprintf(header + 136, 12, "%011llo", static_cast<unsigned long long>(time));
    std::memset(header + 148, ' ', 8);
    header[156] = type;
    std::memcpy(header + 157, target.data(), std::min(target.size(), kShort));
    std::memcpy(header + 257, "ustar  ", 8);
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    std::snprintf(header + 148, 8, "%06o", sum);
    return Put({header, kBlock});
  }
  Status Put(std::string_view bytes) {
    hash_.Add(bytes);
    size_ += bytes.size();
    return linux_sys::WriteAll(fd_, bytes);
  }
  Status Pad() { return Put(std::string((kBlock - size_ % kBlock) % kBlock, '\0')); }
  Status AddText(char type, const std::string& name, const std::string& text) {
    CAISSON_TRY_VOID(Begin(type, name, "", 0644, text.size(), 0));
    CAISSON_TRY_VOID(Put(text));
    return Pad();
  }
  // The next `size` bytes of `file`.
  Status PutFile(int file, uint64_t size, const std::string& name, verify::Sha256Stream* hash = nullptr) {
    char chunk[65536];
    for (uint64_t left = size; left > 0;) {
      const ssize_t count = ::read(file, chunk, std::min<uint64_t>(left, sizeof(chunk)));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return Error::System(count < 0 ? errno : EIO, "read " + Quoted(name) + " of the image");
      left -= static_cast<uint64_t>(count);
      if (hash != nullptr) hash->Add({chunk, static_cast<size_t>(count)});
      CAISSON_TRY_VOID(Put({chunk, static_cast<size_t>(count)}));
    }
    return Pad();
  }
  Status Finish() { return Put(std::string(2 * kBlock, '\0')); }

  std::string Hash() { return hash_.FinishHex(); }
  uint64_t size() const { return size_; }

 private:
  int fd_;
  uint64_t size_ = 0;
  verify::Sha256Stream hash_;
};

UniqueFd OpenBeneath(int directory, const std::string& path, uint64_t flags) {
  struct open_how how {};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(directory, path.c_str(), how));
}

Error Damaged(const std::string& path) {
  return Error::System(EIO, "the image is damaged at " + Quoted(path) + "; import it again");
}

Status AddEntry(int root, char mark, const std::string& hash, const std::string& path, TarFile& tar) {
  if (mark == 'd') return tar.Begin('5', path + "/", "", 0755, 0, 0);
  if (mark == 'l') {
    const UniqueFd link = OpenBeneath(root, path, O_PATH);
    char target[PATH_MAX];
    const ssize_t size = link ? ::readlinkat(link.get(), "", target, sizeof(target)) : -1;
    if (size < 0 || verify::Sha256Hex({target, static_cast<size_t>(size)}) != hash) return Damaged(path);
    return tar.Begin('2', path, std::string(target, static_cast<size_t>(size)), 0777, 0, 0);
  }
  const UniqueFd file = OpenBeneath(root, path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Damaged(path);
  const auto size = static_cast<uint64_t>(info.st_size);
  CAISSON_TRY_VOID(tar.Begin('0', path, "", mark == 'x' ? 0755 : 0644, size, info.st_mtim.tv_sec));
  verify::Sha256Stream content;
  CAISSON_TRY_VOID(tar.PutFile(file.get(), size, path, &content));
  return content.FinishHex() == hash ? Status() : Damaged(path);
}

// The tree as a tar file, in the order of the listing.
Status WriteLayer(int root, const std::string& listing, TarFile& tar) {
  constexpr size_t kSkipped = 2;  // the version and the configuration
  size_t at = 0;
  for (size_t line = 0; at < listing.size(); ++line) {
    const size_t end = listing.find('\0', at);
    if (end == listing.npos) return Damaged("listing");
    const std::string text = listing.substr(at, end - at);
    at = end + 1;
    if (line < kSkipped) continue;
    const size_t second = text.find(' ', 2);
    if (text.size() < 5 || text[1] != ' ' || second == text.npos) return Damaged("listing");
    CAISSON_TRY_VOID(AddEntry(root, text[0], text.substr(2, second - 2), text.substr(second + 1), tar));
  }
  return tar.Finish();
}

std::string Dump(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string ConfigText(const Config& config, const std::string& layer) {
  json env = json::array();
  for (const auto& [key, value] : config.env) env.push_back(key + "=" + value);
  json inner = {{"Env", std::move(env)}, {"WorkingDir", config.working_directory}, {"User", config.user}};
  if (!config.entrypoint.empty()) inner["Entrypoint"] = config.entrypoint;
  if (!config.command.empty()) inner["Cmd"] = config.command;
  return Dump({{"architecture", ThisArchitecture()},
               {"os", "linux"},
               {"config", std::move(inner)},
               {"rootfs", {{"type", "layers"}, {"diff_ids", {"sha256:" + layer}}}}});
}

json Descriptor(const char* type, const std::string& hash, uint64_t size) {
  return {
      {"mediaType", std::string("application/vnd.oci.image.") + type}, {"digest", "sha256:" + hash}, {"size", size}};
}

}  // namespace

Status Export(const Store& store, const std::string& reference, const std::string& path) {
  CAISSON_TRY(const Record record, store.Find(reference));
  CAISSON_TRY(const UniqueFd root, store.OpenTree(record));
  const std::string hex = record.digest.substr(record.digest.find(':') + 1);
  CAISSON_TRY(const std::string listing,
              linux_sys::ReadDocument(store.directory() + "/trees/sha256-" + hex + "/listing", kMaxListingBytes));
  if (verify::Sha256Hex(listing) != hex) return Damaged("listing");
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return Error::Invalid(EscapeForTerminal(path) + ": " + std::strerror(errno));
  const size_t slash = path.rfind('/');
  const auto write = [&]() -> Status {
    CAISSON_TRY(const UniqueFd layer, linux_sys::OpenUnnamed(slash == path.npos ? "." : path.substr(0, slash + 1)));
    TarFile layer_tar(layer.get());
    CAISSON_TRY_VOID(WriteLayer(root.get(), listing, layer_tar));
    const std::string layer_hash = layer_tar.Hash();
    const std::string config = ConfigText(record.config, layer_hash), config_hash = verify::Sha256Hex(config);
    const std::string manifest = Dump({{"schemaVersion", 2},
                                       {"mediaType", "application/vnd.oci.image.manifest.v1+json"},
                                       {"config", Descriptor("config.v1+json", config_hash, config.size())},
                                       {"layers", {Descriptor("layer.v1.tar", layer_hash, layer_tar.size())}}});
    const std::string manifest_hash = verify::Sha256Hex(manifest);
    json chosen = Descriptor("manifest.v1+json", manifest_hash, manifest.size());
    chosen["platform"] = {{"architecture", ThisArchitecture()}, {"os", "linux"}};
    const std::string blobs = "blobs/sha256/";
    const bool named = reference.find("sha256:") != 0;
    json tags = json::array();
    if (named) tags.push_back(reference.find(':') == reference.npos ? reference + ":latest" : reference);
    TarFile tar(file.get());
    CAISSON_TRY_VOID(tar.AddText('0', "oci-layout", R"({"imageLayoutVersion":"1.0.0"})"));
    CAISSON_TRY_VOID(tar.AddText('0', "index.json",
                                 Dump({{"schemaVersion", 2},
                                       {"mediaType", "application/vnd.oci.image.index.v1+json"},
                                       {"manifests", json::array({std::move(chosen)})}})));
    // For engines that read only `docker save`.
    CAISSON_TRY_VOID(tar.AddText('0', "manifest.json",
                                 Dump(json::array({{{"Config", blobs + config_hash},
                                                    {"RepoTags", std::move(tags)},
                                                    {"Layers", json::array({blobs + layer_hash})}}}))));
    // Some readers give directories that are only implied to root.
    for (const char* directory : {"blobs/", "blobs/sha256/"})
      CAISSON_TRY_VOID(tar.Begin('5', directory, "", 0755, 0, 0));
    CAISSON_TRY_VOID(tar.AddText('0', blobs + config_hash, config));
    CAISSON_TRY_VOID(tar.AddText('0', blobs + manifest_hash, manifest));
    CAISSON_TRY_VOID(tar.Begin('0', blobs + layer_hash, "", 0644, layer_tar.size(), 0));
    if (::lseek(layer.get(), 0, SEEK_SET) != 0) return Error::System(errno, "read the layer again");
    CAISSON_TRY_VOID(tar.PutFile(layer.get(), layer_tar.size(), "layer"));
    CAISSON_TRY_VOID(tar.Finish());
    return ::fsync(file.get()) == 0 ? Status() : Status(Error::System(errno, "write " + path));
  };
  Status written = write();
  if (!written) ::unlink(path.c_str());
  return written;
}

}  // namespace caisson::image
