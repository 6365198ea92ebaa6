// Trees of sessions as tar files: out, written while they are read, and in, unpacked by the confined helper of intake/.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <unordered_set>
#include <utility>

#include "base/units.h"
#include "base/words.h"
#include "intake/layer.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "service/engine.h"
#include "service/session_paths.h"
#include "service/sessions.h"
#include "service/tar_writer.h"
#include "session/json_bytes.h"

namespace caisson::service {

using nlohmann::json;
using session::RemoteFile;
using session::SessionDirectory;

namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kDeepest = 128;
constexpr int64_t kMostEntries = 1'000'000;
constexpr int64_t kMostBytes = int64_t{64} << 30;
constexpr size_t kMostLeftOut = 16;  // that are named
// Room in the session is asked for in steps of this size.
constexpr int64_t kReserveBytes = int64_t{1} << 20;

std::string Join(const std::string& directory, const std::string& name) {
  return directory.empty() || directory.back() == '/' ? directory + name : directory + "/" + name;
}

// --- Out

// Files are as they are when their turn comes: the session is not stopped meanwhile. One that shrinks is filled up with
// zeros, as tar does it. What the inside user cannot read, devices, FIFOs and sockets are left out.
class TreeArchive : public SessionArchive {
 public:
  TreeArchive(session::Client client, std::string path) : client_(std::move(client)), path_(std::move(path)) {}

  Status Begin() {
    CAISSON_TRY(RemoteFile top, AboutPath(client_.Stat(path_)));
    if (S_ISDIR(S_ISLNK(top.mode) ? top.target_mode : top.mode)) return Enter(path_, "");
    const size_t slash = path_.rfind('/');
    levels_.push_back({path_.substr(0, slash + 1), "", {std::move(top)}, 0});
    return {};
  }

  Result<std::string> Read() override {
    std::string piece;
    while (piece.size() < kPieceBytes && !done_) {
      if (file_) {
        CAISSON_TRY_VOID(AddBytes(piece));
      } else if (!levels_.empty()) {
        CAISSON_TRY_VOID(AddEntry(piece));
      } else {
        piece += TarEnd();
        done_ = true;
        (void)client_.Note("file_out", {{"path", session::BytesToJson(std::string_view(path_))},
                                        {"files", entries_},
                                        {"bytes", bytes_},
                                        {"left_out", left_out_}});
      }
    }
    return piece;
  }

 private:
  struct Level {
    std::string path;  // inside
    std::string name;  // in the archive
    std::vector<RemoteFile> files;
    size_t next = 0;
  };

  Status Enter(const std::string& path, const std::string& name) {
    if (levels_.size() >= kDeepest) return Error::Exhausted("the tree is deeper than an archive of it may be");
    CAISSON_TRY(std::vector<RemoteFile> files, AboutPath(client_.List(path)));
    levels_.push_back({path, name, std::move(files), 0});
    return {};
  }

  Status AddEntry(std::string& piece) {
    Level& level = levels_.back();
    if (level.next == level.files.size()) {
      levels_.pop_back();
      return {};
    }
    const RemoteFile file = std::move(level.files[level.next++]);
    if (++entries_ > kMostEntries) return Error::Exhausted("the tree has more entries than an archive of it may have");
    const std::string inside = Join(level.path, file.name);
    TarEntry entry;
    entry.name = Join(level.name, file.name);
    entry.mode = file.mode & 07777;
    entry.modified_s = file.modified_ns / 1'000'000'000;
    if (S_ISLNK(file.mode)) {
      entry.type = TarEntry::Type::kLink;
      entry.link_target = file.link_target;
    } else if (S_ISDIR(file.mode)) {
      entry.type = TarEntry::Type::kDirectory;
      piece += TarHead(entry);
      const Status entered = Enter(inside, entry.name);
      if (!entered && entered.error().kind == ErrorKind::kExhausted) return entered;
      if (!entered) ++left_out_;  // its entries
      return {};
    } else if (!S_ISREG(file.mode) || !OpenFile(inside, entry.size)) {
      ++left_out_;
      return {};
    }
    piece += TarHead(entry);
    return {};
  }

  bool OpenFile(const std::string& inside, int64_t& size) {
    Result<UniqueFd> file = client_.OpenFile(inside, false);
    struct stat info {};
    if (!file || ::fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
    size = info.st_size;
    at_ = 0;
    left_ = size;
    file_ = *std::move(file);
    return true;
  }

  Status AddBytes(std::string& piece) {
    const int64_t want = std::min(left_, static_cast<int64_t>(kPieceBytes));
    std::string read(static_cast<size_t>(want), '\0');
    const ssize_t count = want == 0 ? 0 : ::pread(file_.get(), read.data(), read.size(), at_);
    if (count < 0 && errno == EINTR) return {};
    if (count < 0) return Error::System(errno, "read a session's file");
    // Behind its end: zeros.
    if (count > 0) read.resize(static_cast<size_t>(count));
    piece += read;
    at_ += static_cast<int64_t>(read.size());
    left_ -= static_cast<int64_t>(read.size());
    bytes_ += static_cast<int64_t>(read.size());
    if (bytes_ > kMostBytes) return Error::Exhausted("the tree is larger than an archive of it may be");
    if (left_ > 0) return {};
    piece.append(static_cast<size_t>(TarPadding(at_)), '\0');
    file_.Reset();
    return {};
  }

  session::Client client_;
  const std::string path_;
  std::vector<Level> levels_;
  UniqueFd file_;
  int64_t at_ = 0, left_ = 0;
  int64_t entries_ = 0, bytes_ = 0, left_out_ = 0;
  bool done_ = false;
};

// --- In

// Puts entries into a session, through its supervisor.
//
// SECURITY: the helper that unpacks has read hostile bytes, so its names are judged here; a name must stay below the
// directory as far as spelling goes. Where links inside lead is the sandbox's own matter: the supervisor resolves every
// path within the sandbox's tree and with the rights of the inside user.
class SessionSink : public intake::LayerSink {
 public:
  using Reserve = std::function<Status(int64_t bytes)>;

  SessionSink(session::Client& client, std::string path, Reserve reserve)
      : client_(client), path_(std::move(path)), reserve_(std::move(reserve)) {}

  Status OnDirectory(const std::string& name) override {
    CAISSON_TRY(const std::string inside, Inside(name));
    file_.Reset();
    return MakeDirectory(inside);
  }

  Status OnFile(const std::string& name, bool executable, int64_t time) override {
    (void)time;
    CAISSON_TRY(const std::string inside, Inside(name));
    return Create(inside, executable ? 0755 : 0644);
  }

  Status OnBytes(std::string_view bytes) override {
    CAISSON_TRY_VOID(TakeRoom(static_cast<int64_t>(bytes.size())));
    bytes_ += static_cast<int64_t>(bytes.size());
    return AboutPath(linux_sys::WriteAll(file_.get(), bytes));
  }

  Status OnSymlink(const std::string& name, const std::string& target) override {
    CAISSON_TRY(const std::string inside, Inside(name));
    file_.Reset();
    if (target.empty() || target.find('\0') != std::string::npos)
      return Error::Invalid(Quoted(name) + ": the link has no target");
    CAISSON_TRY_VOID(MakeParent(inside));
    CAISSON_TRY_VOID(MakeWay(inside, false));
    ++files_;
    return AboutPath(client_.MakeLink(inside, target));
  }

  // The two names become two files: nothing of the sandbox's user links files from outside.
  Status OnHardLink(const std::string& name, const std::string& other) override {
    CAISSON_TRY(const std::string inside, Inside(name));
    CAISSON_TRY(const std::string original, Inside(other));
    file_.Reset();
    CAISSON_TRY(const UniqueFd from, AboutPath(client_.OpenFile(original, false)));
    struct stat info {};
    if (::fstat(from.get(), &info) != 0) return Error::System(errno, "stat a session's file");
    if (!S_ISREG(info.st_mode)) return Error::Invalid(Quoted(name) + ": links to what is no file");
    CAISSON_TRY_VOID(Create(inside, info.st_mode & 0777));
    for (int64_t at = 0; at < info.st_size;) {
      CAISSON_TRY(const std::string piece,
                  linux_sys::ReadAt(from.get(), at, std::min<int64_t>(kPieceBytes, info.st_size - at)));
      if (piece.empty()) break;
      CAISSON_TRY_VOID(OnBytes(piece));
      at += static_cast<int64_t>(piece.size());
    }
    return {};
  }

  Status OnLeftOut(const std::string& name, const std::string& why) override {
    if (left_out_.size() < kMostLeftOut) left_out_.push_back(Quoted(name) + ": " + why);
    return {};
  }

  Status OnEnd() override {
    file_.Reset();
    return {};
  }

  int64_t files() const { return files_; }
  int64_t bytes() const { return bytes_; }
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  Result<std::string> Inside(std::string name) const {
    while (name.rfind("./", 0) == 0) name.erase(0, 2);
    while (!name.empty() && name.back() == '/') name.pop_back();
    if (name.empty() || name == ".") return path_;
    if (const policy::Fault fault = policy::FaultInFileName(name)) return Error::Invalid(Quoted(name) + ": " + *fault);
    return Join(path_, name);
  }

  Status MakeDirectory(const std::string& inside) {
    if (!made_.insert(inside).second) return {};
    Status made = client_.MakeDirectories(inside, 0755);
    if (!made && made.error().errno_value == EEXIST)
      return Error::Conflict(Quoted(inside) + ": there is a file of this name, where the archive has a directory");
    return AboutPath(std::move(made));
  }
  Status MakeParent(const std::string& inside) { return MakeDirectory(inside.substr(0, inside.rfind('/'))); }

  // An entry replaces what has its name, but no directory. A file that is there is written anew where `keep_file`.
  Status MakeWay(const std::string& inside, bool keep_file) {
    const Result<RemoteFile> there = client_.Stat(inside);
    if (!there || (keep_file && S_ISREG(there->mode))) return {};
    if (S_ISDIR(there->mode)) return AboutPath(Error::System(EISDIR, inside)).In(Quoted(inside));
    return AboutPath(client_.Remove(inside));
  }

  Status Create(const std::string& inside, mode_t mode) {
    file_.Reset();
    CAISSON_TRY_VOID(MakeParent(inside));
    CAISSON_TRY_VOID(MakeWay(inside, true));
    CAISSON_TRY(file_, AboutPath(client_.OpenFile(inside, true, mode)));
    struct stat info {};
    if (::fstat(file_.get(), &info) != 0) return Error::System(errno, "stat a session's file");
    if ((info.st_mode & 07777) != mode && ::fchmod(file_.get(), mode) != 0)
      return AboutPath(Error::System(errno, "set the mode of a session's file"));
    ++files_;
    return {};
  }

  Status TakeRoom(int64_t bytes) {
    while (room_ < bytes) {
      CAISSON_TRY_VOID(reserve_(kReserveBytes));
      room_ += kReserveBytes;
    }
    room_ -= bytes;
    return {};
  }

  session::Client& client_;
  const std::string path_;
  const Reserve reserve_;
  std::unordered_set<std::string> made_;
  UniqueFd file_;
  int64_t room_ = 0, files_ = 0, bytes_ = 0;
  std::vector<std::string> left_out_;
};

Result<UniqueFd> InFile(std::string_view memory) {
  UniqueFd file(::memfd_create("archive", MFD_CLOEXEC));
  if (!file) return Error::System(errno, "make a memory file");
  CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), memory));
  return file;
}

}  // namespace

Result<std::unique_ptr<SessionArchive>> Sessions::OpenArchive(const Caller& caller, const std::string& id,
                                                              const std::string& path) {
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kRead, id));
  auto archive = std::make_unique<TreeArchive>(std::move(client), path);
  CAISSON_TRY_VOID(archive->Begin());
  return std::unique_ptr<SessionArchive>(std::move(archive));
}

Result<json> Sessions::PutArchive(const Caller& caller, const std::string& id, const std::string& path, int source,
                                  std::string_view memory) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
  UniqueFd held;
  if (source < 0) {
    CAISSON_TRY(held, InFile(memory));
    source = held.get();
  }
  intake::Limits limits;
  limits.entries = 250'000;
  limits.bytes = limits.file_bytes = static_cast<uint64_t>(record.disk_bytes);
  limits.path_bytes = 4095;
  limits.ratio_free = uint64_t{64} << 20;
  SessionSink sink(client, path, [&](int64_t bytes) { return CheckDisk(id, record, client, bytes); });
  const Result<intake::LayerFacts> unpacked = intake::UnpackLayer(source, limits, sink);
  // Also what was unpacked before an error is inside.
  const Status noted = client.Note(
      "file_in",
      {{"path", session::BytesToJson(std::string_view(path))}, {"files", sink.files()}, {"bytes", sink.bytes()}});
  if (!unpacked) return unpacked.error();
  if (!noted) return noted.error();
  return json{{"path", session::BytesToJson(std::string_view(path))},
              {"files", sink.files()},
              {"bytes", sink.bytes()},
              {"left_out", sink.left_out()}};
}

}  // namespace caisson::service
