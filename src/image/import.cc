#include "image/import.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "base/words.h"
#include "image/manifest.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "policy/syntax.h"
#include "verify/digest.h"

extern char** environ;

namespace caisson::image {
namespace {

constexpr int kMaxNestedIndexes = 3;

bool BeginsWith(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

// Opens a file or directory below `directory`. Links that stay below are followed where `follow` says so: Docker saves
// a layer that occurs twice as a link.
UniqueFd OpenBeneath(int directory, const std::string& path, uint64_t flags, bool follow = false) {
  struct open_how how {};
  how.flags = flags | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (follow ? 0 : RESOLVE_NO_SYMLINKS);
  return UniqueFd(linux_sys::OpenAt2(directory, path.c_str(), how));
}

bool Has(int directory, const char* name) {
  struct stat info {};
  return ::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

// Reads a directory of the host as if it were a layer.
class DirectoryReader {
 public:
  DirectoryReader(TreeBuilder& tree, const intake::Limits& limits) : tree_(tree), limits_(limits) {}

  Status Read(int directory, const std::string& prefix, size_t depth) {
    if (depth > limits_.depth)
      return Error::Invalid(Quoted(prefix) + ": nested deeper than " + std::to_string(limits_.depth) + " directories");
    UniqueFd opened(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened) return Unreadable(prefix);
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(opened.Release()), ::closedir);
    while (const struct dirent* entry = ::readdir(stream.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      CAISSON_TRY_VOID(ReadEntry(directory, name, prefix.empty() ? name : prefix + "/" + name, depth));
    }
    return {};
  }

 private:
  static Error Unreadable(const std::string& path) {
    return Error::Invalid(Quoted(path) + ": " + std::strerror(errno) + "; make it readable or leave it out");
  }

  Status ReadEntry(int directory, const std::string& name, const std::string& path, size_t depth) {
    struct stat info {};
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return Unreadable(path);
    if (S_ISDIR(info.st_mode)) {
      const UniqueFd below = OpenBeneath(directory, name, O_RDONLY | O_DIRECTORY);
      if (!below) return Unreadable(path);
      CAISSON_TRY_VOID(tree_.OnDirectory(path));
      return Read(below.get(), path, depth + 1);
    }
    if (S_ISLNK(info.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = ::readlinkat(directory, name.c_str(), target, sizeof(target));
      if (length < 0) return Unreadable(path);
      return tree_.OnSymlink(path, std::string(target, static_cast<size_t>(length)));
    }
    if (!S_ISREG(info.st_mode)) return tree_.OnLeftOut(path, "neither file, directory nor link");
    const UniqueFd file = OpenBeneath(directory, name, O_RDONLY);
    if (!file || ::fstat(file.get(), &info) != 0) return Unreadable(path);
    if (!S_ISREG(info.st_mode)) return Error::Invalid(Quoted(path) + ": changed while it was read");
    return ReadFile(file.get(), path, info);
  }

  Status ReadFile(int file, const std::string& path, const struct stat& info) {
    if (static_cast<uint64_t>(info.st_size) > limits_.file_bytes)
      return Error::Invalid(Quoted(path) + ": is larger than the limit for one file");
    CAISSON_TRY_VOID(tree_.OnFile(path, (info.st_mode & 0111) != 0, info.st_mtim.tv_sec));
    uint64_t left = static_cast<uint64_t>(info.st_size);
    char chunk[65536];
    for (;;) {
      const ssize_t size = ::read(file, chunk, sizeof(chunk));
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return Unreadable(path);
      if (size == 0) return {};
      if (static_cast<uint64_t>(size) > left) return Error::Invalid(Quoted(path) + ": grew while it was read");
      left -= static_cast<uint64_t>(size);
      CAISSON_TRY_VOID(tree_.OnBytes({chunk, static_cast<size_t>(size)}));
    }
  }

  TreeBuilder& tree_;
  const intake::Limits& limits_;
};

// An OCI or Docker image as files below a directory.
class Layout {
 public:
  explicit Layout(int directory) : directory_(directory) {}

  static bool IsOne(int directory) {
    if (Has(directory, "oci-layout")) return true;
    return Has(directory, "manifest.json") && !Has(directory, "usr") && !Has(directory, "bin") &&
           !Has(directory, "etc");
  }

  Status Apply(const intake::Limits& limits, TreeBuilder& tree, Config& config) const {
    CAISSON_TRY(const Manifest manifest, FindManifest());
    CAISSON_TRY(const std::string text, ReadBlob(manifest.config));
    Result<ConfigDocument> document = ReadConfig(text);
    if (!document) return std::move(document).error().In("the image's configuration");
    if (document->unpacked_layers.size() != manifest.layers.size()) {
      return Error::Invalid("the manifest has " + std::to_string(manifest.layers.size()) +
                            " layers and the configuration " + std::to_string(document->unpacked_layers.size()));
    }
    for (size_t i = 0; i < manifest.layers.size(); ++i) {
      Status applied = ApplyLayer(manifest.layers[i], document->unpacked_layers[i], limits, tree);
      if (!applied) return std::move(applied).error().In("layer " + std::to_string(i + 1));
    }
    config = std::move(document->config);
    return {};
  }

 private:
  Result<UniqueFd> Open(const Blob& blob) const {
    UniqueFd file = OpenBeneath(directory_, blob.path, O_RDONLY, true);
    if (!file) return Error::Invalid(Quoted(blob.path) + " of the image: " + std::strerror(errno));
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return Error::System(errno, "stat " + blob.path);
    if (!S_ISREG(info.st_mode)) return Error::Invalid(Quoted(blob.path) + " of the image: not a file");
    if (blob.size >= 0 && info.st_size != blob.size)
      return Error::Invalid(Quoted(blob.path) + " of the image: has " + std::to_string(info.st_size) +
                            " bytes, and its manifest says " + std::to_string(blob.size));
    return file;
  }

  static Status ExpectHash(const Blob& blob, const std::string& found) {
    if (blob.sha256.empty() || blob.sha256 == found) return {};
    return Error::Invalid(Quoted(blob.path) + " of the image: its SHA-256 is " + found + ", and it should be " +
                          blob.sha256);
  }

  Result<std::string> ReadBlob(const Blob& blob) const {
    CAISSON_TRY(const UniqueFd file, Open(blob));
    std::string text;
    char chunk[65536];
    for (;;) {
      const ssize_t size = ::read(file.get(), chunk, sizeof(chunk));
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return Error::System(errno, "read " + blob.path);
      if (size == 0) break;
      text.append(chunk, static_cast<size_t>(size));
      if (text.size() > kMaxDocumentBytes) return Error::Invalid(Quoted(blob.path) + " of the image: too large");
    }
    CAISSON_TRY_VOID(ExpectHash(blob, verify::Sha256Hex(text)));
    return text;
  }

  Result<Manifest> FindManifest() const {
    if (!Has(directory_, "index.json")) {
      CAISSON_TRY(const std::string text, ReadBlob({"manifest.json", "", -1}));
      Result<Manifest> manifest = ReadDockerManifest(text);
      if (!manifest) return std::move(manifest).error().In("manifest.json");
      return manifest;
    }
    Blob blob{"index.json", "", -1};
    for (int depth = 0; depth < kMaxNestedIndexes; ++depth) {
      CAISSON_TRY(const std::string text, ReadBlob(blob));
      Result<std::vector<Choice>> choices = ReadIndex(text);
      if (!choices) return std::move(choices).error().In(blob.path);
      if (choices->empty())
        return Error::Invalid(blob.path + ": has no image for linux/" + std::string(ThisArchitecture()));
      if (choices->size() > 1)
        return Error::Invalid(blob.path + ": has " + std::to_string(choices->size()) + " images for linux/" +
                              ThisArchitecture() + "; copy one of them to a layout of its own");
      blob = choices->front().blob;
      if (choices->front().nested) continue;
      CAISSON_TRY(const std::string found, ReadBlob(blob));
      Result<Manifest> manifest = ReadManifest(found);
      if (!manifest) return std::move(manifest).error().In(blob.path);
      return manifest;
    }
    return Error::Invalid("the image's indexes are nested too deeply");
  }

  Status ApplyLayer(const Blob& layer, const std::string& unpacked, const intake::Limits& limits,
                    TreeBuilder& tree) const {
    CAISSON_TRY(const UniqueFd file, Open(layer));
    tree.BeginLayer(true);
    CAISSON_TRY(const intake::LayerFacts facts, intake::UnpackLayer(file.get(), limits, tree));
    CAISSON_TRY_VOID(ExpectHash(layer, facts.sha256));
    // Where the layer is not compressed, the hash that we computed ourselves is at the same time this one.
    if (unpacked != facts.unpacked)
      return Error::Invalid("unpacked, its SHA-256 is " + facts.unpacked + ", and it should be " + unpacked);
    return {};
  }

  int directory_;
};

// Lets skopeo copy the image into an OCI layout at `path`.
Status CopyWithSkopeo(const std::string& source, const std::string& path) {
  std::vector<std::string> words = {
      "skopeo", "copy", "--quiet", "--override-os", "linux", source, "oci:" + path + ":image"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  // Its messages are for the user; our standard output may be a document.
  ::posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = -1;
  const int fault = ::posix_spawnp(&pid, "skopeo", &files, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (fault == ENOENT)
    return Error::Unsupported("skopeo is not installed, which fetches " + EscapeForTerminal(source) +
                              ": apt-get install skopeo; or save the image to a file and import that");
  if (fault != 0) return Error::System(fault, "start skopeo");
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return Error::System(errno, "wait for skopeo");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Error::Invalid("skopeo could not copy " + EscapeForTerminal(source) + "; its message is above");
}

Result<Record> ImportLayout(const Store& store, Store::Draft draft, int layout, const std::string& name,
                            const std::string& source, const intake::Limits& limits) {
  CAISSON_TRY(UniqueFd root, draft.MakeDirectory("root"));
  TreeBuilder tree(std::move(root), limits);
  Config config;
  CAISSON_TRY_VOID(Layout(layout).Apply(limits, tree, config));
  CAISSON_TRY(const Contents contents, tree.Finish());
  return store.Add(std::move(draft), name, config, contents, source);
}

Result<Record> ImportDirectory(const Store& store, int directory, const std::string& name, const std::string& source,
                               const intake::Limits& limits) {
  CAISSON_TRY(Store::Draft draft, store.Begin());
  if (Layout::IsOne(directory)) return ImportLayout(store, std::move(draft), directory, name, source, limits);
  CAISSON_TRY(UniqueFd root, draft.MakeDirectory("root"));
  TreeBuilder tree(std::move(root), limits);
  tree.BeginLayer(false);
  CAISSON_TRY_VOID(DirectoryReader(tree, limits).Read(directory, "", 0));
  CAISSON_TRY(const Contents contents, tree.Finish());
  return store.Add(std::move(draft), name, {}, contents, source);
}

Result<Record> ImportTar(const Store& store, int file, const std::string& name, const std::string& source,
                         const intake::Limits& limits) {
  CAISSON_TRY(Store::Draft draft, store.Begin());
  CAISSON_TRY(UniqueFd root, draft.MakeDirectory("root"));
  UniqueFd kept(::fcntl(root.get(), F_DUPFD_CLOEXEC, 3));
  TreeBuilder tree(std::move(root), limits);
  tree.BeginLayer(false);
  CAISSON_TRY_VOID(intake::UnpackLayer(file, limits, tree));
  if (Layout::IsOne(kept.get())) {
    CAISSON_TRY(Store::Draft second, store.Begin());
    return ImportLayout(store, std::move(second), kept.get(), name, source, limits);
  }
  CAISSON_TRY(const Contents contents, tree.Finish());
  return store.Add(std::move(draft), name, {}, contents, source);
}

}  // namespace

Result<Record> Import(const Store& store, const std::string& name, const std::string& source,
                      const intake::Limits& limits) {
  if (const policy::Fault fault = policy::FaultInImageName(name)) return Error::Invalid(Quoted(name) + " " + *fault);
  if (BeginsWith(source, "docker://") || BeginsWith(source, "docker-daemon:")) {
    CAISSON_TRY(Store::Draft draft, store.Begin());
    CAISSON_TRY_VOID(CopyWithSkopeo(source, draft.path() + "/layout"));
    const UniqueFd layout(::open((draft.path() + "/layout").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!layout) return Error::System(errno, "open the layout that skopeo made");
    CAISSON_TRY(Store::Draft second, store.Begin());
    return ImportLayout(store, std::move(second), layout.get(), name, source, limits);
  }
  const UniqueFd opened(::open(source.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened) return Error::Invalid(EscapeForTerminal(source) + ": " + std::strerror(errno));
  struct stat info {};
  if (::fstat(opened.get(), &info) != 0) return Error::System(errno, "stat " + source);
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
    return Error::Invalid(EscapeForTerminal(source) + ": neither a directory nor a file");
  Result<Record> record = S_ISDIR(info.st_mode) ? ImportDirectory(store, opened.get(), name, source, limits)
                                                : ImportTar(store, opened.get(), name, source, limits);
  if (!record) return std::move(record).error().In(EscapeForTerminal(source));
  return record;
}

}  // namespace caisson::image
