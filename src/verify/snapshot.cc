#include "verify/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <memory>

#include "linux/syscalls.h"
#include "verify/digest.h"

namespace caisson::verify {

namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxEntries = 1'000'000;
// The most bytes to hash, kept or not. A sparse file of terabytes costs its creator nothing and the reader hours.
constexpr uint64_t kMaxBytes = uint64_t{4} << 30;

UniqueFd OpenBelow(int directory, const char* name, uint64_t flags) {
  struct open_how how {};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(linux_sys::OpenAt2(directory, name, how));
}

// One line per entry, in order of name: kind, hash of the contents or link target, name.
std::string DigestLine(const policy::PlannedFile& file, const std::string& content_hash) {
  const char* kind = file.kind == policy::FileKind::kSymlink     ? "l "
                     : file.kind == policy::FileKind::kDirectory ? "d "
                     : (file.mode & 0111) != 0                   ? "x "
                                                                 : "f ";
  std::string line = kind;
  line.append(content_hash).append(" ").append(file.path).push_back('\0');
  return line;
}

class Reader {
 public:
  explicit Reader(const SnapshotLimits& limits) : limits_(limits) {}

  Status ReadDirectory(int directory, const std::string& prefix, size_t depth) {
    if (depth > kMaxDepth)
      return Error::Invalid(prefix + ": nested deeper than " + std::to_string(kMaxDepth) + " directories");
    UniqueFd opened = OpenBelow(directory, ".", O_RDONLY | O_DIRECTORY);
    if (!opened) return Error::Invalid((prefix.empty() ? "." : prefix) + ": " + std::strerror(errno));
    std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(opened.Release()), ::closedir);
    while (const struct dirent* entry = ::readdir(stream.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (++entries_ > kMaxEntries) return Error::Invalid("the source has more than a million entries");
      CAISSON_TRY_VOID(ReadEntry(directory, name, prefix.empty() ? name : prefix + "/" + name, depth));
    }
    return {};
  }

  Status ReadFile(int fd, const std::string& path, bool executable) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return Error::Invalid(path + ": " + std::strerror(errno));
    uint64_t left = static_cast<uint64_t>(info.st_size);
    if (left > kMaxBytes - bytes_)
      return Error::Invalid(path + ": the source is larger than " + std::to_string(kMaxBytes >> 30) + " GiB");
    Sha256Stream hash;
    std::string bytes;
    char chunk[65536];
    for (;;) {
      const ssize_t size = ::read(fd, chunk, sizeof(chunk));
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return Error::Invalid(path + ": " + std::strerror(errno));
      if (size == 0) break;
      // Reads up to the initial size: a file that grows as fast as we read would never end.
      if (static_cast<uint64_t>(size) > left) return Error::Invalid(path + ": grew while it was read");
      left -= static_cast<uint64_t>(size);
      hash.Add({chunk, static_cast<size_t>(size)});
      bytes_ += static_cast<uint64_t>(size);
      if (Fits()) bytes.append(chunk, static_cast<size_t>(size));
    }
    Keep({path, std::move(bytes), executable ? 0755U : 0644U, policy::FileKind::kRegular}, hash.FinishHex());
    names_.push_back(path);
    return {};
  }

  Snapshot Finish() {
    Snapshot snapshot;
    snapshot.complete = Fits();
    std::string all;
    for (auto& [path, line] : lines_) all += line;
    snapshot.digest = Sha256Hex(all);
    snapshot.names = std::move(names_);
    std::sort(snapshot.names.begin(), snapshot.names.end());
    if (snapshot.complete) snapshot.files = std::move(files_);
    return snapshot;
  }

 private:
  bool Fits() const { return bytes_ <= limits_.bytes && lines_.size() <= limits_.files; }

  void Keep(policy::PlannedFile file, const std::string& content_hash) {
    lines_.emplace(file.path, DigestLine(file, content_hash));
    if (Fits())
      files_.push_back(std::move(file));
    else
      files_.clear();
  }

  Status ReadEntry(int directory, const std::string& name, const std::string& path, size_t depth) {
    struct stat info {};
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      return Error::Invalid(path + ": " + std::strerror(errno));
    if (S_ISDIR(info.st_mode)) {
      UniqueFd below = OpenBelow(directory, name.c_str(), O_RDONLY | O_DIRECTORY);
      if (!below) return Error::Invalid(path + ": " + std::strerror(errno));
      Keep({path, "", 0755U, policy::FileKind::kDirectory}, "-");  // empty directories too: git has them
      return ReadDirectory(below.get(), path, depth + 1);
    }
    if (S_ISLNK(info.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = ::readlinkat(directory, name.c_str(), target, sizeof(target));
      if (length < 0) return Error::Invalid(path + ": " + std::strerror(errno));
      std::string text(target, static_cast<size_t>(length));
      const std::string hash = Sha256Hex(text);
      Keep({path, std::move(text), 0777U, policy::FileKind::kSymlink}, hash);
      return {};
    }
    if (!S_ISREG(info.st_mode)) return {};  // sockets, pipes and devices are not source files
    UniqueFd file = OpenBelow(directory, name.c_str(), O_RDONLY);
    if (!file) return Error::Invalid(path + ": " + std::strerror(errno) + "; make it readable or leave it out");
    return ReadFile(file.get(), path, (info.st_mode & 0111) != 0);
  }

  const SnapshotLimits& limits_;
  size_t entries_ = 0;
  uint64_t bytes_ = 0;
  std::map<std::string, std::string> lines_;
  std::vector<policy::PlannedFile> files_;
  std::vector<std::string> names_;
};

}  // namespace

Result<Snapshot> TakeSnapshot(const policy::JudgedPath& source, const SnapshotLimits& limits) {
  Reader reader(limits);
  if (source.is_directory) {
    Status status = reader.ReadDirectory(source.fd.get(), "", 0);
    if (!status) return std::move(status).error().In(source.canonical);
    return reader.Finish();
  }
  // The judged descriptor names the file but cannot be read; this opens that same file, without using the path again.
  UniqueFd file(
      ::open(("/proc/self/fd/" + std::to_string(source.fd.get())).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return Error::Invalid(source.canonical + ": " + std::strerror(errno) + "; make it readable");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Error::System(errno, "stat " + source.canonical);
  const std::string name = source.canonical.substr(source.canonical.rfind('/') + 1);
  CAISSON_TRY_VOID(reader.ReadFile(file.get(), name, (info.st_mode & 0111) != 0));
  Snapshot snapshot = reader.Finish();
  if (!snapshot.complete)
    return Error::Invalid(source.canonical + ": larger than " + std::to_string(limits.bytes >> 20) + " MiB");
  return snapshot;
}

std::string DigestOf(const std::vector<policy::PlannedFile>& files) {
  std::map<std::string, std::string> lines;
  for (const policy::PlannedFile& file : files) {
    const bool has_content = file.kind != policy::FileKind::kDirectory;
    lines.emplace(file.path, DigestLine(file, has_content ? Sha256Hex(file.bytes) : "-"));
  }
  std::string all;
  for (const auto& [path, line] : lines) all += line;
  return Sha256Hex(all);
}

}  // namespace caisson::verify
