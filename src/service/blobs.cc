#include "service/blobs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/words.h"

namespace caisson::service {
namespace {

constexpr char kIncoming[] = "incoming";
constexpr char kLock[] = "lock";
// Names are queried in batches, so that neither the list nor the query grows with the directory.
constexpr size_t kPortion = 500;

bool IsSha256(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string PathOf(const std::string& sha256) { return sha256.substr(0, 2) + "/" + sha256; }

int64_t ModifiedMs(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1000 + status.st_mtim.tv_nsec / 1'000'000;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// The names in a directory below `root`, in no order; none when there is no such directory.
Result<std::vector<std::string>> NamesIn(int root, const std::string& path) {
  std::vector<std::string> names;
  const int fd = ::openat(root, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) return names;
  if (fd < 0) return Error::System(errno, "open " + path);
  const std::unique_ptr<DIR, CloseDirectory> directory(::fdopendir(fd));
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  if (errno != 0) return Error::System(errno, "read the directory " + path);
  return names;
}

struct Found {
  std::string sha256;
  int64_t bytes = 0;
  int64_t modified_ms = 0;
};

// Calls `each` for every blob; stops at its first error.
Status ForEachBlob(int root, const std::function<Status(const Found&)>& each) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 256; ++i) {
    const std::string folder = {kDigits[i >> 4], kDigits[i & 15]};
    CAISSON_TRY(const std::vector<std::string> names, NamesIn(root, folder));
    for (const std::string& name : names) {
      struct stat status {};
      if (!IsSha256(name) || name.compare(0, 2, folder) != 0) continue;
      if (::fstatat(root, PathOf(name).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;  // just removed
      CAISSON_TRY_VOID(each({name, status.st_size, ModifiedMs(status)}));
    }
  }
  return {};
}

Result<std::string> RandomName() {
  unsigned char bytes[12];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return Error::System(errno, "getrandom");
  }
  std::string name = kIncoming + std::string("/");
  for (const unsigned char byte : bytes) {
    name += static_cast<char>('a' + (byte >> 4));
    name += static_cast<char>('a' + (byte & 15));
  }
  return name;
}

}  // namespace

Result<std::unique_ptr<Blobs>> Blobs::Open(const std::string& directory, int64_t quota_bytes, std::string quota,
                                           std::atomic<int64_t>* total) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return Error::System(errno, "mkdir " + directory);
  UniqueFd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return Error::System(errno, "open " + directory);
  if (::mkdirat(root.get(), kIncoming, 0700) != 0 && errno != EEXIST) {
    return Error::System(errno, "mkdir " + directory + "/" + kIncoming);
  }
  std::unique_ptr<Blobs> blobs(new Blobs(directory, std::move(root), quota_bytes, std::move(quota), total));
  CAISSON_TRY_VOID(ForEachBlob(blobs->root_.get(), [&](const Found& blob) -> Status {
    blobs->Count(blobs->stored_, blob.bytes);
    return {};
  }));
  return blobs;
}

Result<std::string> Blobs::Put(std::string_view bytes) {
  const std::string sha256 = verify::Sha256Hex(bytes);
  if (Keep(sha256)) {
    CAISSON_TRY_VOID(SyncFolderOf(sha256));  // the thread that put it may not have stored the reference yet
    return sha256;
  }
  CAISSON_TRY(const std::unique_ptr<Upload> upload, Begin(0));
  CAISSON_TRY_VOID(upload->Add(bytes));
  return upload->Finish();
}

Result<std::unique_ptr<Blobs::Upload>> Blobs::Begin(int64_t max_bytes) {
  CAISSON_TRY(std::string name, RandomName());
  UniqueFd file(::openat(root_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Failed("make a file");
  return std::unique_ptr<Upload>(new Upload(*this, std::move(file), std::move(name), max_bytes));
}

Result<UniqueFd> Blobs::Get(const std::string& sha256, int64_t* bytes) const {
  if (!IsSha256(sha256)) return Error::Invalid(Quoted(sha256) + " is no SHA-256 in lower-case hex");
  UniqueFd file(::openat(root_.get(), PathOf(sha256).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file && errno == ENOENT) return Error::NotFound("there is no blob " + sha256);
  if (!file) return Failed("open " + sha256);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return Failed("stat " + sha256);
  if (bytes != nullptr) *bytes = status.st_size;
  return file;
}

Status Blobs::Keep(const std::string& sha256) const {
  if (!IsSha256(sha256)) return Error::Invalid(Quoted(sha256) + " is no SHA-256 in lower-case hex");
  CAISSON_TRY(const UniqueFd lock, Lock(LOCK_SH));
  if (::utimensat(root_.get(), PathOf(sha256).c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0) return {};
  if (errno == ENOENT) return Error::NotFound("there is no blob " + sha256);
  return Failed("touch " + sha256);
}

Result<int64_t> Blobs::Collect(
    int64_t grace_ms, const std::function<Result<std::vector<std::string>>(const std::vector<std::string>&)>& in_use) {
  const int64_t before_ms = UnixMillis() - grace_ms;
  int64_t published_before = 0;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    published_before = published_;
  }
  CAISSON_TRY_VOID(RemoveOldIncoming(before_ms));

  int64_t kept_bytes = 0;
  int64_t removed = 0;
  std::vector<Found> old;
  const auto remove_unused = [&]() -> Status {
    std::vector<std::string> names;
    for (const Found& blob : old) names.push_back(blob.sha256);
    CAISSON_TRY(const std::vector<std::string> used, in_use(names));
    const std::set<std::string> keep(used.begin(), used.end());
    for (const Found& blob : old) {
      // Lock and check again: another thread may have put the blob again since it was found old.
      CAISSON_TRY(const UniqueFd lock, Lock(LOCK_EX));
      const std::string path = PathOf(blob.sha256);
      struct stat status {};
      const bool there = ::fstatat(root_.get(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
      if (there && keep.count(blob.sha256) == 0 && ModifiedMs(status) < before_ms) {
        if (::unlinkat(root_.get(), path.c_str(), 0) != 0) return Failed("remove " + blob.sha256);
        ++removed;
      } else if (there) {
        kept_bytes += blob.bytes;
      }
    }
    old.clear();
    return {};
  };
  CAISSON_TRY_VOID(ForEachBlob(root_.get(), [&](const Found& blob) -> Status {
    if (blob.modified_ms >= before_ms) {
      kept_bytes += blob.bytes;
      return {};
    }
    old.push_back(blob);
    return old.size() < kPortion ? Status() : remove_unused();
  }));
  if (!old.empty()) CAISSON_TRY_VOID(remove_unused());

  const std::lock_guard<std::mutex> guard(mutex_);
  // Blobs that arrived meanwhile may be counted twice until the next run: an overestimate keeps the quota.
  Count(stored_, kept_bytes + (published_ - published_before) - stored_);
  return removed;
}

int64_t Blobs::bytes() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return stored_ + uploading_;
}

Status Blobs::Reserve(int64_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (quota_ > 0 && stored_ + uploading_ + bytes > quota_) {
    return Error::Exhausted(quota_name_ + ": " + std::to_string(stored_ + uploading_) + " of " +
                            std::to_string(quota_) + " bytes are taken, and " + std::to_string(bytes) +
                            " more do not fit");
  }
  Count(uploading_, bytes);
  return {};
}

Result<UniqueFd> Blobs::Lock(int how) const {
  // Opened for each use: threads that share a descriptor would also share the lock.
  UniqueFd lock(::openat(root_.get(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return Failed("open the lock");
  while (::flock(lock.get(), how) != 0) {
    if (errno != EINTR) return Failed("flock");
  }
  return lock;
}

Result<bool> Blobs::Publish(const std::string& incoming, const std::string& sha256) const {
  const std::string folder = sha256.substr(0, 2);
  if (::mkdirat(root_.get(), folder.c_str(), 0700) == 0) {
    if (::fsync(root_.get()) != 0) return Failed("fsync");
  } else if (errno != EEXIST) {
    return Failed("mkdir " + folder);
  }
  bool appeared = false;
  {
    CAISSON_TRY(const UniqueFd lock, Lock(LOCK_SH));
    appeared = ::linkat(root_.get(), incoming.c_str(), root_.get(), PathOf(sha256).c_str(), 0) == 0;
    // The blob exists: renew its time stamp. The lock keeps it from being removed.
    if (!appeared && (errno != EEXIST || ::utimensat(root_.get(), PathOf(sha256).c_str(), nullptr, 0) != 0)) {
      return Failed("link " + sha256);
    }
  }
  CAISSON_TRY_VOID(SyncFolderOf(sha256));
  return appeared;
}

Status Blobs::SyncFolderOf(const std::string& sha256) const {
  const std::string folder = sha256.substr(0, 2);
  const UniqueFd directory(::openat(root_.get(), folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!directory || ::fsync(directory.get()) != 0) return Failed("fsync " + folder);
  return {};
}

Status Blobs::RemoveOldIncoming(int64_t before_ms) const {
  CAISSON_TRY(const std::vector<std::string> names, NamesIn(root_.get(), kIncoming));
  for (const std::string& name : names) {
    const std::string path = kIncoming + std::string("/") + name;
    struct stat status {};
    // A live upload writes, and each write renews the time stamp of its file.
    if (::fstatat(root_.get(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (ModifiedMs(status) < before_ms) ::unlinkat(root_.get(), path.c_str(), 0);
  }
  return {};
}

Error Blobs::Failed(const std::string& what) const {
  const int cause = errno;
  return Error::System(cause, what + " in " + directory_);
}

Blobs::Upload::~Upload() {
  ::unlinkat(blobs_.root_.get(), name_.c_str(), 0);
  const std::lock_guard<std::mutex> guard(blobs_.mutex_);
  blobs_.Count(blobs_.uploading_, -reserved_);
}

Status Blobs::Upload::Add(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (max_ > 0 && size > max_ - reserved_) {
    return Error::Invalid("more than the " + std::to_string(max_) + " bytes that are allowed");
  }
  CAISSON_TRY_VOID(blobs_.Reserve(size));
  reserved_ += size;
  digest_.Add(bytes);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return blobs_.Failed("write a file");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<std::string> Blobs::Upload::Finish() {
  std::string sha256 = digest_.FinishHex();
  if (::fchmod(file_.get(), 0400) != 0 || ::fsync(file_.get()) != 0) return blobs_.Failed("fsync a file");
  CAISSON_TRY(const bool appeared, blobs_.Publish(name_, sha256));
  if (appeared) {
    const std::lock_guard<std::mutex> guard(blobs_.mutex_);
    blobs_.Count(blobs_.uploading_, -reserved_);
    blobs_.Count(blobs_.stored_, reserved_);
    blobs_.published_ += reserved_;
    reserved_ = 0;
  }
  return sha256;
}

}  // namespace caisson::service
