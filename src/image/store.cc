#include "image/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/utf8.h"
#include "base/words.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "policy/syntax.h"
#include "verify/digest.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"

namespace caisson::image {
namespace {

using nlohmann::json;

constexpr size_t kMaxRecordBytes = size_t{1} << 20;
constexpr std::string_view kScheme = "sha256:";
constexpr std::string_view kTreePrefix = "sha256-";
constexpr std::array kEntryKinds = {"tree", "file", "empty", "link", "merged"};

std::string TreeName(const std::string& hex) { return std::string(kTreePrefix) + hex; }

// Names that are not UTF-8 are kept as lists of bytes would be too; JSON has text only, so they are percent-encoded.
std::string Encoded(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f && c != '%') {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

Result<std::string> Decoded(const std::string& text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto digit = [&](size_t at) -> int {
      const char c = at < text.size() ? text[at] : 'x';
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    const int high = digit(i + 1), low = digit(i + 2);
    if (high < 0 || low < 0 || high * 16 + low == 0) return Error::Invalid("a name is not encoded as it should be");
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

json ToJson(const Record& record) {
  json entries = json::array();
  for (const policy::RootEntry& entry : record.entries) {
    json item = {{"name", Encoded(entry.name)}, {"kind", kEntryKinds[static_cast<size_t>(entry.kind)]}};
    if (entry.kind == policy::RootEntryKind::kLink) item["target"] = Encoded(entry.target);
    entries.push_back(std::move(item));
  }
  return {{"schema_version", 1},
          {"digest", record.digest},
          {"config", Canonical(record.config)},
          {"entries", std::move(entries)},
          {"files", record.files},
          {"bytes", record.bytes},
          {"left_out", record.left_out},
          {"left_out_count", record.left_out_count},
          {"source", ReplaceInvalidUtf8(record.source)},
          {"imported", record.imported}};
}

Result<policy::RootEntry> ReadEntry(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(verify::ExpectObject(value, path, {"name", "kind", "target"}));
  policy::RootEntry entry;
  CAISSON_TRY(const std::string name, verify::ReadRequired(value, path, "name", verify::ReadString));
  CAISSON_TRY(entry.name, Decoded(name));
  CAISSON_TRY(const size_t kind, verify::ReadRequired(value, path, "kind", verify::ReadChoice,
                                                      std::initializer_list<std::string_view>{
                                                          kEntryKinds[0], kEntryKinds[1], kEntryKinds[2],
                                                          kEntryKinds[3], kEntryKinds[4]}));
  entry.kind = static_cast<policy::RootEntryKind>(kind);
  std::string target;
  CAISSON_TRY_VOID(verify::ReadOptional(value, path, "target", target, verify::ReadString));
  CAISSON_TRY(entry.target, Decoded(target));
  return entry;
}

Result<Record> ReadRecordText(const std::string& text) {
  verify::JsonBounds bounds;
  bounds.max_bytes = kMaxRecordBytes;
  CAISSON_TRY(const json value, verify::ReadJson(text, bounds));
  CAISSON_TRY_VOID(verify::ExpectObject(value, "",
                                        {"schema_version", "digest", "config", "entries", "files", "bytes", "left_out",
                                         "left_out_count", "source", "imported"}));
  CAISSON_TRY_VOID(verify::ExpectSchemaVersion(value, ""));
  Record record;
  CAISSON_TRY(record.digest, verify::ReadRequired(value, "", "digest", verify::ReadString));
  CAISSON_TRY(const std::string config, verify::ReadRequired(value, "", "config", verify::ReadString));
  CAISSON_TRY(record.config, ReadCanonical(config));
  CAISSON_TRY(const json* entries, verify::RequireMember(value, "", "entries"));
  CAISSON_TRY_VOID(verify::ExpectArray(*entries, "entries", 0, 256));
  for (size_t i = 0; i < entries->size(); ++i) {
    CAISSON_TRY(policy::RootEntry entry, ReadEntry((*entries)[i], verify::PathOfElement("entries", i)));
    record.entries.push_back(std::move(entry));
  }
  for (const auto& [name, number] : {std::pair{"files", &record.files}, std::pair{"bytes", &record.bytes},
                                     std::pair{"left_out_count", &record.left_out_count}}) {
    CAISSON_TRY(const int64_t count, verify::ReadRequired(value, "", name, verify::ReadInteger, 0, INT64_MAX));
    *number = static_cast<uint64_t>(count);
  }
  CAISSON_TRY(const json* left_out, verify::RequireMember(value, "", "left_out"));
  CAISSON_TRY_VOID(verify::ExpectArray(*left_out, "left_out", 0, 64));
  for (size_t i = 0; i < left_out->size(); ++i) {
    CAISSON_TRY(std::string line, verify::ReadString((*left_out)[i], verify::PathOfElement("left_out", i)));
    record.left_out.push_back(std::move(line));
  }
  CAISSON_TRY(record.source, verify::ReadRequired(value, "", "source", verify::ReadString));
  CAISSON_TRY(record.imported, verify::ReadRequired(value, "", "imported", verify::ReadString));
  return record;
}

// Writes a file that appears complete or not at all.
Status WriteFile(int directory, const std::string& name, std::string_view text) {
  const std::string draft = "." + name + "." + std::to_string(::getpid());
  const UniqueFd file(::openat(directory, draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file || ::fchmod(file.get(), 0644) != 0) return Error::System(errno, "write " + name);
  CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), text));
  if (::fsync(file.get()) != 0 || ::renameat(directory, draft.c_str(), directory, name.c_str()) != 0 ||
      ::fsync(directory) != 0)
    return Error::System(errno, "write " + name);
  return {};
}

Result<std::vector<std::string>> ListDirectory(int directory) {
  UniqueFd opened(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return Error::System(errno, "list the image store");
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(opened.Release()), ::closedir);
  std::vector<std::string> names;
  while (const struct dirent* entry = ::readdir(stream.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

UniqueFd OpenDirectory(int parent, const std::string& path) {
  struct open_how how {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(parent, path.c_str(), how));
}

// Makes the directory and its parents. The store of root is for all users of the machine, others' are their own.
Status MakeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const bool own = slash == path.npos && ::geteuid() != 0;
    if (::mkdir(part.c_str(), own ? 0700 : 0755) != 0 && errno != EEXIST)
      return Error::System(errno, "make the image store " + part);
    if (slash == path.npos) return {};
  }
}

}  // namespace

std::string DigestText(const Config& config, const std::string& listing) {
  std::string text = "caisson-image 1";
  text.push_back('\0');
  text.append(Canonical(config)).push_back('\0');
  return text.append(listing);
}

Result<std::string> Store::DefaultDirectory() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = ::getenv(name);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  if (const char* chosen = ::getenv("CAISSON_IMAGES"); chosen != nullptr && chosen[0] != '\0') {
    if (chosen[0] != '/') return Error::Invalid("CAISSON_IMAGES: must be an absolute path");
    return std::string(chosen);
  }
  if (::geteuid() == 0) return std::string(kSystemDirectory);
  if (const std::string data = variable("XDG_DATA_HOME"); !data.empty()) return data + "/caisson/images";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.local/share/caisson/images";
  return Error::Invalid("there is no place for images: set CAISSON_IMAGES or HOME");
}

Result<UniqueFd> Store::OpenBelow(const std::string& path) const {
  UniqueFd opened(::open((directory_ + "/" + path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened && errno == ENOENT) return Error::NotFound("the image store " + directory_ + " is empty");
  if (!opened) return Error::System(errno, "open the image store " + directory_);
  return opened;
}

Result<std::string> Store::Resolve(const std::string& reference) const {
  if (const policy::Fault fault = policy::FaultInImageReference(reference))
    return Error::Invalid(Quoted(reference) + " " + *fault);
  std::string digest = reference;
  if (reference.compare(0, kScheme.size(), kScheme) != 0) {
    CAISSON_TRY(const UniqueFd names, OpenBelow("names"));
    const UniqueFd file(::openat(names.get(), reference.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file && errno == ENOENT)
      return Error::NotFound("there is no image " + Quoted(reference) + " in " + directory_ +
                             " (see: caisson image list)");
    char text[128];
    const ssize_t size = file ? ::read(file.get(), text, sizeof(text)) : -1;
    if (size < 0) return Error::System(errno, "read the image name " + reference);
    digest.assign(text, static_cast<size_t>(size));
    while (!digest.empty() && digest.back() == '\n') digest.pop_back();
    if (digest.compare(0, kScheme.size(), kScheme) != 0 || policy::FaultInImageReference(digest))
      return Error::System(EPROTO, "the image name " + reference + " does not hold a digest");
  }
  return digest.substr(kScheme.size());
}

Result<Record> Store::ReadRecord(const std::string& hex) const {
  const std::string path = directory_ + "/trees/" + TreeName(hex) + "/image.json";
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT)
    return Error::NotFound("there is no image sha256:" + hex + " in " + directory_);
  CAISSON_TRY(const std::string text, linux_sys::ReadDocument(path, kMaxRecordBytes));
  Result<Record> record = ReadRecordText(text);
  if (!record) return std::move(record).error().In(path);
  if (record->digest != std::string(kScheme) + hex) return Error::System(EPROTO, path + ": is of another image");
  return record;
}

Result<Record> Store::Find(const std::string& reference) const {
  CAISSON_TRY(const std::string hex, Resolve(reference));
  return ReadRecord(hex);
}

Result<UniqueFd> Store::OpenTree(const Record& record) const {
  const std::string hex = record.digest.substr(kScheme.size());
  CAISSON_TRY(const UniqueFd trees, OpenBelow("trees"));
  const std::string path = TreeName(hex) + "/root";
  UniqueFd root = OpenDirectory(trees.get(), path);
  if (!root || ::flock(root.get(), LOCK_SH | LOCK_NB) != 0)
    return Error::NotFound("the image sha256:" + hex + " is being removed, or its tree is damaged");
  // Removal renames a tree before it locks it, and a tree that was opened before may have been renamed since.
  struct stat opened {
  }, there{};
  if (::fstat(root.get(), &opened) != 0 || ::fstatat(trees.get(), path.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0 ||
      opened.st_ino != there.st_ino)
    return Error::NotFound("the image sha256:" + hex + " was removed");
  return root;
}

Result<policy::PlannedImage> Store::Open(const std::string& reference) const {
  CAISSON_TRY(Record record, Find(reference));
  policy::PlannedImage image;
  image.name = reference;
  image.digest = record.digest;
  policy::PlannedRoot& root = image.root.emplace();
  CAISSON_TRY(root.fd, OpenTree(record));
  // The path is looked up a second time by a run without privileges, which accepts no link on the way.
  const std::string link = "/proc/self/fd/" + std::to_string(root.fd.get());
  char path[PATH_MAX];
  const ssize_t size = ::readlink(link.c_str(), path, sizeof(path));
  if (size <= 0 || static_cast<size_t>(size) >= sizeof(path)) return Error::System(errno, "read " + link);
  root.path.assign(path, static_cast<size_t>(size));
  root.entries = std::move(record.entries);
  image.environment = std::move(record.config.env);
  image.command = std::move(record.config.entrypoint);
  image.command.insert(image.command.end(), record.config.command.begin(), record.config.command.end());
  std::string directory = record.config.working_directory;
  while (!directory.empty() && directory[0] == '/') directory.erase(0, 1);
  while (!directory.empty() && directory.back() == '/') directory.pop_back();
  if (!directory.empty() && OpenDirectory(root.fd.get(), directory)) image.working_directory = "/" + directory;
  return image;
}

Result<std::vector<std::pair<std::string, std::string>>> Store::ReadNames() const {
  std::vector<std::pair<std::string, std::string>> names;
  Result<UniqueFd> directory = OpenBelow("names");
  if (!directory && directory.error().kind == ErrorKind::kNotFound) return names;
  if (!directory) return std::move(directory).error();
  CAISSON_TRY(const std::vector<std::string> found, ListDirectory(directory->get()));
  for (const std::string& name : found) {
    if (policy::FaultInImageName(name)) continue;
    CAISSON_TRY(std::string hex, Resolve(name));
    names.emplace_back(name, std::move(hex));
  }
  return names;
}

Result<std::vector<NamedImage>> Store::List() const {
  CAISSON_TRY(const auto names, ReadNames());
  std::vector<NamedImage> images;
  std::set<std::string> named;
  for (const auto& [name, hex] : names) {
    CAISSON_TRY(Record record, ReadRecord(hex));
    images.push_back({name, std::move(record)});
    named.insert(hex);
  }
  Result<UniqueFd> trees = OpenBelow("trees");
  if (!trees)
    return trees.error().kind == ErrorKind::kNotFound ? Result<std::vector<NamedImage>>(std::move(images))
                                                      : std::move(trees).error();
  CAISSON_TRY(const std::vector<std::string> found, ListDirectory(trees->get()));
  for (const std::string& name : found) {
    if (name.compare(0, kTreePrefix.size(), kTreePrefix) != 0) continue;
    const std::string hex = name.substr(kTreePrefix.size());
    if (named.count(hex) > 0) continue;
    CAISSON_TRY(Record record, ReadRecord(hex));
    images.push_back({"", std::move(record)});
  }
  return images;
}

Result<UniqueFd> Store::Lock() const {
  UniqueFd lock(::open((directory_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return Error::System(errno, "lock the image store " + directory_);
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Error::System(errno, "lock the image store " + directory_);
  }
  return lock;
}

Store::Draft::~Draft() {
  if (parent_) static_cast<void>(RemoveTree(parent_.get(), name_));
}

Result<UniqueFd> Store::Draft::MakeDirectory(const std::string& name) {
  if (::mkdirat(directory_.get(), name.c_str(), 0755) != 0)
    return Error::System(errno, "make a directory for the image");
  UniqueFd made = OpenDirectory(directory_.get(), name);
  if (!made || ::fchmod(made.get(), 0755) != 0) return Error::System(errno, "make a directory for the image");
  return made;
}

Result<Store::Draft> Store::Begin() const {
  for (const char* part : {"", "/names", "/trees", "/tmp"}) CAISSON_TRY_VOID(MakeDirectories(directory_ + part));
  CAISSON_TRY(UniqueFd tmp, OpenBelow("tmp"));
  CAISSON_TRY(const UniqueFd lock, Lock());  // until the draft is locked: garbage collection takes what is not
  std::string name;
  for (int i = 0;; ++i) {
    name = "import-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    if (::mkdirat(tmp.get(), name.c_str(), 0755) == 0) break;
    if (errno != EEXIST) return Error::System(errno, "write to the image store " + directory_);
  }
  UniqueFd made = OpenDirectory(tmp.get(), name);
  if (!made || ::fchmod(made.get(), 0755) != 0 || ::flock(made.get(), LOCK_SH | LOCK_NB) != 0)
    return Error::System(errno, "write to the image store " + directory_);
  return Draft(directory_, std::move(name), std::move(tmp), std::move(made));
}

Result<Record> Store::Add(Draft draft, const std::string& name, const Config& config, const Contents& contents,
                          const std::string& source) const {
  if (const policy::Fault fault = policy::FaultInImageName(name)) return Error::Invalid(Quoted(name) + " " + *fault);
  const std::string text = DigestText(config, contents.listing);
  const std::string hex = verify::Sha256Hex(text);
  Record record{
      std::string(kScheme) + hex, config, contents.entries, contents.files, contents.bytes, contents.left_out_count,
      contents.left_out,          source, UtcNow()};
  CAISSON_TRY_VOID(WriteFile(draft.directory_.get(), "listing", text));
  CAISSON_TRY_VOID(WriteFile(draft.directory_.get(), "image.json", ToJson(record).dump(1) + "\n"));
  CAISSON_TRY(const UniqueFd trees, OpenBelow("trees"));
  CAISSON_TRY(const UniqueFd names, OpenBelow("names"));
  // The tree itself was written without it.
  if (::syncfs(draft.directory_.get()) != 0) return Error::System(errno, "sync the image store");
  CAISSON_TRY(const UniqueFd lock, Lock());
  if (::renameat2(draft.parent_.get(), draft.name_.c_str(), trees.get(), TreeName(hex).c_str(), RENAME_NOREPLACE) ==
      0) {
    draft.parent_.Reset();
    if (::fsync(trees.get()) != 0) return Error::System(errno, "sync the image store");
  } else if (errno == EEXIST) {
    CAISSON_TRY(record, ReadRecord(hex));
  } else {
    return Error::System(errno, "keep the image");
  }
  CAISSON_TRY_VOID(WriteFile(names.get(), name, record.digest + "\n"));
  return record;
}

Status Store::Remove(const std::string& name) const {
  CAISSON_TRY_VOID(Resolve(name));
  if (policy::FaultInImageName(name)) return Error::Invalid("give the name of the image, not its digest");
  CAISSON_TRY(const UniqueFd names, OpenBelow("names"));
  CAISSON_TRY(const UniqueFd lock, Lock());
  if (::unlinkat(names.get(), name.c_str(), 0) != 0) return Error::System(errno, "remove the image name " + name);
  if (::fsync(names.get()) != 0) return Error::System(errno, "sync the image store");
  return {};
}

Result<Store::Collected> Store::CollectGarbage() const {
  Collected collected;
  Result<UniqueFd> trees = OpenBelow("trees");
  if (!trees)
    return trees.error().kind == ErrorKind::kNotFound ? Result<Collected>(collected) : std::move(trees).error();
  CAISSON_TRY(const UniqueFd tmp, OpenBelow("tmp"));
  std::vector<std::string> garbage;
  {
    CAISSON_TRY(const UniqueFd lock, Lock());
    CAISSON_TRY(const auto names, ReadNames());
    std::set<std::string> named;
    for (const auto& [name, hex] : names) named.insert(TreeName(hex));
    CAISSON_TRY(const std::vector<std::string> found, ListDirectory(trees->get()));
    for (const std::string& tree : found) {
      if (named.count(tree) > 0 || tree.compare(0, kTreePrefix.size(), kTreePrefix) != 0) continue;
      const UniqueFd root = OpenDirectory(trees->get(), tree + "/root");
      if (root && ::flock(root.get(), LOCK_EX | LOCK_NB) != 0) {
        ++collected.in_use;
        continue;
      }
      const Result<Record> record = ReadRecord(tree.substr(kTreePrefix.size()));
      // Nothing opens it any more once it has another name; what was opened before sees that it was renamed.
      const std::string moved = "removed-" + tree + "-" + std::to_string(::getpid());
      if (::renameat(trees->get(), tree.c_str(), tmp.get(), moved.c_str()) != 0)
        return Error::System(errno, "remove an image");
      ++collected.trees;
      if (record) collected.bytes += record->bytes;
    }
    CAISSON_TRY(const std::vector<std::string> drafts, ListDirectory(tmp.get()));
    for (const std::string& draft : drafts) {
      const UniqueFd directory = OpenDirectory(tmp.get(), draft);
      if (directory && ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) continue;  // an import in progress
      garbage.push_back(draft);
    }
  }
  for (const std::string& draft : garbage) CAISSON_TRY_VOID(RemoveTree(tmp.get(), draft));
  return collected;
}

}  // namespace caisson::image
