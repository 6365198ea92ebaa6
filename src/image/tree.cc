#include "image/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

#include "base/units.h"
#include "base/words.h"
#include "linux/files.h"
#include "linux/syscalls.h"

namespace caisson::image {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel
constexpr size_t kMaxLeftOut = 16;
constexpr std::string_view kWhiteout = ".wh.", kOpaque = ".wh..wh..opq", kMetadata = ".wh..wh.";
constexpr int64_t kLatestTime = int64_t{1} << 33;  // in the year 2242; the limit of some file systems
// Directories that every sandbox has of its own.
constexpr std::array kOwnDirectories = {"dev", "proc", "sys", "tmp", "scratch", "workspace", "run", ".cover"};

Error Refusal(std::string_view path, const std::string& problem) {
  return Error::Invalid(Quoted(path) + ": " + problem);
}

// The parts of a path, without "." and empty ones. ".." is kept.
std::vector<std::string> Split(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(part.size() + 1, path.size()));
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  return parts;
}

std::string Join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }  // npos + 1 is 0

UniqueFd OpenBeneath(int directory, const char* path, uint64_t flags) {
  struct open_how how {};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(directory, path, how));
}

// The file system's answer to a name of the image; what is not the name's fault is ours.
Error WriteError(int error, const std::string& path) {
  if (error == ENAMETOOLONG || error == EINVAL || error == EILSEQ) return Refusal(path, std::strerror(error));
  return Error::System(error, "write " + Quoted(path) + " of the image");
}

}  // namespace

TreeBuilder::TreeBuilder(UniqueFd directory, const intake::Limits& limits)
    : root_(std::move(directory)), limits_(limits) {}

void TreeBuilder::BeginLayer(bool whiteouts) {
  ++layer_;
  whiteouts_ = whiteouts;
}

Result<int> TreeBuilder::OpenDirectory(const std::string& path) {
  if (path.empty()) return root_.get();
  if (opened_ && opened_path_ == path) return opened_.get();
  UniqueFd opened = OpenBeneath(root_.get(), path.c_str(), O_PATH | O_DIRECTORY);
  if (!opened) return WriteError(errno, path);
  opened_ = std::move(opened);
  opened_path_ = path;
  return opened_.get();
}

Result<std::string> TreeBuilder::RealDirectory(std::vector<std::string> components, const std::string& shown,
                                               bool make) {
  std::reverse(components.begin(), components.end());  // the next one is the last
  std::string at;
  int links = 0;
  while (!components.empty()) {
    const std::string component = std::move(components.back());
    components.pop_back();
    if (component == "..") {  // of a link: it stays in the tree, as for a process whose root this is
      at = ParentOf(at);
      continue;
    }
    const std::string next = Join(at, component);
    const auto found = nodes_.find(next);
    if (found == nodes_.end()) {
      if (!make) return Error::NotFound(Quoted(shown) + ": does not exist");
      CAISSON_TRY_VOID(MakeDirectory(next));
      at = next;
    } else if (found->second.kind == Kind::kDirectory) {
      at = next;
    } else if (found->second.kind == Kind::kLink) {
      if (++links > kMaxLinks) return Refusal(shown, "leads through too many links");
      const std::string& target = found->second.content;
      if (target[0] == '/') at.clear();
      std::vector<std::string> more = Split(target);
      components.insert(components.end(), more.rbegin(), more.rend());
    } else {
      return Refusal(shown, "lies below " + Quoted(next) + ", which is a file");
    }
    if (at.size() > limits_.path_bytes || components.size() > limits_.path_bytes)
      return Refusal(shown, "leads to a path that is too long");
  }
  return at;
}

Result<TreeBuilder::Place> TreeBuilder::Locate(const std::string& path, bool make) {
  std::vector<std::string> components = Split(path);
  if (path.find('\0') != path.npos) return Refusal(path, "the name has a NUL in it");
  if (std::find(components.begin(), components.end(), "..") != components.end())
    return Refusal(path, "leads out of the image");
  if (components.size() > limits_.depth + 1)
    return Refusal(path, "nested deeper than " + std::to_string(limits_.depth) + " directories");
  Place place;
  if (components.empty()) return place;
  place.name = std::move(components.back());
  components.pop_back();
  CAISSON_TRY(place.directory, RealDirectory(std::move(components), path, make));
  if (place.path().size() > limits_.path_bytes ||
      static_cast<uint64_t>(std::count(place.directory.begin(), place.directory.end(), '/')) > limits_.depth)
    return Refusal(path, "leads to a path that is too long");
  return place;
}

Status TreeBuilder::Insert(const Place& place, Node node) {
  if (nodes_.size() >= limits_.entries)
    return Refusal(place.path(), "the image has more than " + std::to_string(limits_.entries) + " entries");
  node.layer = layer_;
  nodes_[place.path()] = std::move(node);
  return {};
}

Status TreeBuilder::MakeDirectory(const std::string& path) {
  CAISSON_TRY(const int parent, OpenDirectory(ParentOf(path)));
  if (::mkdirat(parent, NameOf(path).c_str(), 0755) != 0) return WriteError(errno, path);
  return Insert({ParentOf(path), NameOf(path)}, {});
}

Status TreeBuilder::RemoveOne(const std::string& path, const Node& node) {
  CAISSON_TRY(const int parent, OpenDirectory(ParentOf(path)));
  if (::unlinkat(parent, NameOf(path).c_str(), node.kind == Kind::kDirectory ? AT_REMOVEDIR : 0) != 0)
    return Error::System(errno, "remove " + Quoted(path) + " of the image");
  return {};
}

Status TreeBuilder::Remove(const std::string& path) {
  const auto first = nodes_.lower_bound(path + "/"), end = nodes_.lower_bound(path + "0");  // '0' follows '/'
  for (auto at = end; at != first;) {
    --at;
    CAISSON_TRY_VOID(RemoveOne(at->first, at->second));
  }
  opened_.Reset();  // it may have been one of them
  nodes_.erase(first, end);
  const auto own = nodes_.find(path);
  if (own == nodes_.end()) return {};
  CAISSON_TRY_VOID(RemoveOne(path, own->second));
  nodes_.erase(own);
  opened_.Reset();
  return {};
}

Result<bool> TreeBuilder::ApplyWhiteout(const std::string& path) {
  const std::vector<std::string> components = Split(path);
  if (!whiteouts_ || components.empty() || components.back().compare(0, kWhiteout.size(), kWhiteout) != 0) return false;
  CAISSON_TRY(const Place place, Locate(path, true));
  if (place.name == kOpaque) {
    std::vector<std::string> lower;
    const std::string prefix = place.directory.empty() ? "" : place.directory + "/";
    for (auto at = nodes_.lower_bound(prefix); at != nodes_.end() && at->first.compare(0, prefix.size(), prefix) == 0;
         ++at) {
      const bool child = at->first.find('/', prefix.size()) == std::string::npos;
      if (child && at->second.layer < layer_) lower.push_back(at->first);
    }
    for (const std::string& child : lower) CAISSON_TRY_VOID(Remove(child));
    return true;
  }
  if (place.name.compare(0, kMetadata.size(), kMetadata) == 0) return true;  // bookkeeping of AUFS
  const std::string name = place.name.substr(kWhiteout.size());
  if (name.empty() || name == "." || name == "..") return Refusal(path, "is a whiteout of nothing");
  const std::string removed = Join(place.directory, name);
  const auto found = nodes_.find(removed);
  // A whiteout is about the layers below, wherever it stands in its own.
  if (found != nodes_.end() && found->second.layer < layer_) CAISSON_TRY_VOID(Remove(removed));
  return true;
}

Status TreeBuilder::Clear(const Place& place, bool for_directory) {
  const auto found = nodes_.find(place.path());
  if (found == nodes_.end() || (for_directory && found->second.kind == Kind::kDirectory)) return {};
  return Remove(place.path());
}

Status TreeBuilder::OnDirectory(const std::string& path) {
  CAISSON_TRY_VOID(EndFile());
  CAISSON_TRY(const bool whiteout, ApplyWhiteout(path));
  if (whiteout) return {};
  CAISSON_TRY(const Place place, Locate(path, true));
  if (place.name.empty()) return {};
  CAISSON_TRY_VOID(Clear(place, true));
  const auto found = nodes_.find(place.path());
  if (found == nodes_.end()) return MakeDirectory(place.path());
  found->second.layer = layer_;
  return {};
}

Status TreeBuilder::OnFile(const std::string& path, bool executable, int64_t time) {
  CAISSON_TRY_VOID(EndFile());
  CAISSON_TRY(const bool whiteout, ApplyWhiteout(path));
  if (whiteout) return {};
  CAISSON_TRY(file_place_, Locate(path, true));
  if (file_place_.name.empty()) return Refusal(path, "is the top directory, and a file");
  CAISSON_TRY_VOID(Clear(file_place_, false));
  CAISSON_TRY(const int parent, OpenDirectory(file_place_.directory));
  file_.Reset(::openat(parent, file_place_.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) return WriteError(errno, path);
  file_node_ = Node{executable ? Kind::kExecutable : Kind::kFile, 0, 0, ""};
  file_time_ = std::clamp<int64_t>(time, 0, kLatestTime);
  file_hash_ = verify::Sha256Stream();
  return {};
}

Status TreeBuilder::OnBytes(std::string_view bytes) {
  if (!file_) return {};  // of a whiteout
  bytes_ += bytes.size();
  if (bytes_ > limits_.bytes)
    return Refusal(file_place_.path(), "the image is larger than " + FormatSize(static_cast<int64_t>(limits_.bytes)));
  file_node_.bytes += bytes.size();
  file_hash_.Add(bytes);
  Status written = linux_sys::WriteAll(file_.get(), bytes);
  return written ? std::move(written) : std::move(written).error().In("write " + Quoted(file_place_.path()));
}

Status TreeBuilder::EndFile() {
  if (!file_) return {};
  file_node_.content = file_hash_.FinishHex();
  const mode_t mode = file_node_.kind == Kind::kExecutable ? 0555 : 0444;
  // Python compares the time of a source with the one in its compiled form.
  const struct timespec times[2] = {{file_time_, 0}, {file_time_, 0}};
  if (::fchmod(file_.get(), mode) != 0 || ::futimens(file_.get(), times) != 0)
    return Error::System(errno, "set the mode and time of " + Quoted(file_place_.path()));
  file_.Reset();
  return Insert(file_place_, std::move(file_node_));
}

Status TreeBuilder::OnSymlink(const std::string& path, const std::string& target) {
  CAISSON_TRY_VOID(EndFile());
  CAISSON_TRY(const bool whiteout, ApplyWhiteout(path));
  if (whiteout) return {};
  CAISSON_TRY(const Place place, Locate(path, true));
  if (place.name.empty()) return Refusal(path, "is the top directory, and a link");
  if (target.empty() || target.size() >= PATH_MAX || target.find('\0') != target.npos)
    return Refusal(path, "is a link without a usable target");
  CAISSON_TRY_VOID(Clear(place, false));
  CAISSON_TRY(const int parent, OpenDirectory(place.directory));
  if (::symlinkat(target.c_str(), parent, place.name.c_str()) != 0) return WriteError(errno, path);
  return Insert(place, {Kind::kLink, 0, 0, target});
}

Status TreeBuilder::OnHardLink(const std::string& path, const std::string& other) {
  CAISSON_TRY_VOID(EndFile());
  CAISSON_TRY(const bool whiteout, ApplyWhiteout(path));
  if (whiteout) return {};
  CAISSON_TRY(const Place place, Locate(path, true));
  if (place.name.empty()) return Refusal(path, "is the top directory, and a link");
  Result<Place> located = Locate(other, false);
  if (!located && located.error().kind != ErrorKind::kNotFound) return std::move(located).error();
  const auto found = located ? nodes_.find(located->path()) : nodes_.end();
  // A device, for example, which was left out itself.
  if (found == nodes_.end() || found->second.kind == Kind::kDirectory)
    return OnLeftOut(path, "a hard link to " + Quoted(other) + ", which is no file of the image");
  const Place from = *std::move(located);
  const Node node = found->second;
  if (place.path() == from.path()) return {};
  if (node.kind == Kind::kLink) return OnSymlink(path, node.content);
  // Found anew: clearing the place may have removed it.
  CAISSON_TRY_VOID(Clear(place, false));
  if (nodes_.count(from.path()) == 0) return Refusal(path, "is a hard link to a file below itself");
  CAISSON_TRY(const int opened, OpenDirectory(from.directory));
  const UniqueFd source(::fcntl(opened, F_DUPFD_CLOEXEC, 3));  // OpenDirectory keeps only one
  CAISSON_TRY(const int parent, OpenDirectory(place.directory));
  // Without AT_SYMLINK_FOLLOW; neither name leads through a link.
  if (!source || ::linkat(source.get(), from.name.c_str(), parent, place.name.c_str(), 0) != 0)
    return WriteError(errno, path);
  return Insert(place, node);
}

Status TreeBuilder::OnLeftOut(const std::string& path, const std::string& why) {
  CAISSON_TRY_VOID(EndFile());
  ++left_out_count_;
  if (left_out_.size() < kMaxLeftOut) left_out_.push_back(Quoted(path) + ": " + why);
  return {};
}

Result<Contents> TreeBuilder::Finish() {
  CAISSON_TRY_VOID(EndFile());
  if (nodes_.empty()) return Error::Invalid("the image is empty");
  Contents contents;
  contents.files = nodes_.size();
  contents.left_out = std::move(left_out_);
  contents.left_out_count = left_out_count_;
  for (const auto& [path, node] : nodes_) {
    constexpr char kMarks[] = {'d', 'f', 'x', 'l'};
    const std::string content = node.kind == Kind::kDirectory ? "-"
                                : node.kind == Kind::kLink    ? verify::Sha256Hex(node.content)
                                                              : node.content;
    contents.listing += kMarks[static_cast<size_t>(node.kind)];
    contents.listing.append(" ").append(content).append(" ").append(path).push_back('\0');
    contents.bytes += node.bytes;
    if (node.kind == Kind::kDirectory) {
      CAISSON_TRY(const int parent, OpenDirectory(ParentOf(path)));
      if (::fchmodat(parent, NameOf(path).c_str(), 0555, 0) != 0)
        return Error::System(errno, "make " + Quoted(path) + " read-only");
    }
    if (path.find('/') != path.npos) continue;
    if (std::find(kOwnDirectories.begin(), kOwnDirectories.end(), path) != kOwnDirectories.end()) continue;
    using policy::RootEntryKind;
    const auto below = nodes_.lower_bound(path + "/");
    const bool empty = below == nodes_.end() || below->first.compare(0, path.size() + 1, path + "/") != 0;
    const bool merged = path == "etc" || path == "var";
    if (merged && (node.kind != Kind::kDirectory || empty)) continue;  // the sandbox's own is used
    const RootEntryKind kind = merged                          ? RootEntryKind::kMerged
                               : node.kind == Kind::kLink      ? RootEntryKind::kLink
                               : node.kind != Kind::kDirectory ? RootEntryKind::kFile
                               : empty                         ? RootEntryKind::kEmpty
                                                               : RootEntryKind::kTree;
    contents.entries.push_back({path, kind, node.kind == Kind::kLink ? node.content : ""});
  }
  constexpr size_t kMaxTopEntries = 256;
  if (contents.entries.size() > kMaxTopEntries)
    return Error::Invalid("the image has more than " + std::to_string(kMaxTopEntries) + " entries at its top");
  if (::fchmod(root_.get(), 0555) != 0) return Error::System(errno, "make the image read-only");
  return contents;
}

Status RemoveTree(int parent, const std::string& name) {
  UniqueFd directory = OpenBeneath(parent, name.c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory && errno == ENOENT) return {};
  if (!directory && errno == EACCES && ::fchmodat(parent, name.c_str(), 0700, 0) == 0)
    directory = OpenBeneath(parent, name.c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory) return Error::System(errno, "remove " + Quoted(name));
  if (::fchmod(directory.get(), 0700) != 0) return Error::System(errno, "remove " + Quoted(name));
  const int fd = directory.get();
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(directory.Release()), ::closedir);
  if (!stream) return Error::System(errno, "remove " + Quoted(name));
  while (const struct dirent* entry = ::readdir(stream.get())) {
    const std::string child = entry->d_name;
    if (child == "." || child == "..") continue;
    if (::unlinkat(fd, child.c_str(), 0) == 0) continue;
    if (errno != EISDIR && errno != EPERM) return Error::System(errno, "remove " + Quoted(child));
    CAISSON_TRY_VOID(RemoveTree(fd, child));
  }
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) return Error::System(errno, "remove " + Quoted(name));
  return {};
}

}  // namespace caisson::image
