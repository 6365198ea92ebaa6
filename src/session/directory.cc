#include "session/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/utf8.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "policy/syntax.h"

namespace caisson::session {

namespace {

constexpr char kIdPrefix[] = "ses_";
constexpr size_t kIdLetters = 20;
constexpr size_t kMaxRecordBytes = size_t{1} << 20;

bool IsId(std::string_view text) {
  return text.size() == std::strlen(kIdPrefix) + kIdLetters && text.substr(0, 4) == kIdPrefix &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567", 4) == std::string_view::npos;
}

Result<std::string> NewId() {
  unsigned char random[kIdLetters];
  if (::getrandom(random, sizeof(random), 0) != ssize_t{sizeof(random)}) return Error::System(errno, "getrandom");
  std::string id = kIdPrefix;
  for (const unsigned char byte : random) id += "abcdefghijklmnopqrstuvwxyz234567"[byte & 31U];
  return id;
}

Status MakeDirectoriesFor(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return Error::System(errno, "make the directory " + part);
    if (slash == std::string::npos) return {};
  }
}

// Other users must not be able to replace what is in it.
Status ExpectPrivate(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error::System(errno, "stat " + path);
  if (info.st_uid != ::geteuid() && ::geteuid() != 0) return Error::Denied(path + ": belongs to another user");
  if ((info.st_mode & 022) != 0)
    return Error::Denied(path + ": others may write to it; take that away (chmod go-w) or set CAISSON_SESSIONS");
  return {};
}

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

Directory OpenEntries(int fd) {
  const int own = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = own < 0 ? nullptr : ::fdopendir(own);
  if (entries == nullptr && own >= 0) ::close(own);
  return {entries, ::closedir};
}

std::string SafeName(const std::string& project) {
  std::string name;
  for (const char c : project.substr(project.rfind('/') + 1)) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (plain || (!name.empty() && (lower == '.' || lower == '_' || lower == '-'))) name += lower;
  }
  name.resize(std::min<size_t>(name.size(), 48));
  return IsSessionName(name) ? name : "session";
}

// An open directory and the entries of it that are still to be removed.
struct Level {
  UniqueFd fd;
  Directory entries{nullptr, ::closedir};
  std::string name;
};

}  // namespace

Result<std::string> SessionsRoot() {
  const auto variable = [](const char* name) {
    const char* value = ::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string given = variable("CAISSON_SESSIONS"); !given.empty()) {
    if (given[0] != '/') return Error::Invalid("CAISSON_SESSIONS: must be an absolute path");
    return given.size() > 1 && given.back() == '/' ? given.substr(0, given.size() - 1) : given;
  }
  if (::geteuid() == 0) return std::string("/var/lib/caisson/sessions");
  if (const std::string state = variable("XDG_STATE_HOME"); !state.empty() && state[0] == '/')
    return state + "/caisson/sessions";
  if (const std::string home = variable("HOME"); !home.empty() && home[0] == '/')
    return home + "/.local/state/caisson/sessions";
  return Error::Invalid("there is no place for sessions: set HOME, XDG_STATE_HOME or CAISSON_SESSIONS");
}

Result<SessionDirectory> SessionDirectory::Create(const std::string& root) {
  CAISSON_TRY_VOID(MakeDirectoriesFor(root));
  CAISSON_TRY(const UniqueFd root_fd, linux_sys::Open(root, O_RDONLY | O_DIRECTORY));
  CAISSON_TRY_VOID(ExpectPrivate(root_fd.get(), root));
  CAISSON_TRY(const std::string id, NewId());
  if (::mkdirat(root_fd.get(), id.c_str(), 0700) != 0) return Error::System(errno, "make the session's directory");
  return Open(root + "/" + id);
}

Result<SessionDirectory> SessionDirectory::Open(const std::string& path) {
  std::string id = path.substr(path.rfind('/') + 1);
  if (!IsId(id)) return Error::NotFound(path + ": not a session's directory");
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT) return Error::NotFound("there is no session " + id);
  if (!fd) return Error::System(errno, "open " + path);
  CAISSON_TRY_VOID(ExpectPrivate(fd.get(), path));
  return SessionDirectory(path, std::move(id), std::move(fd));
}

Result<std::string> SessionDirectory::ReadText(const char* name, size_t most_bytes) const {
  if (::faccessat(fd_.get(), name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
    return Error::NotFound(File(name) + ": does not exist");
  return linux_sys::ReadSmallFile(fd_.get(), name, most_bytes);
}

Status SessionDirectory::WriteText(const char* name, std::string_view text) const {
  const std::string fresh = std::string(name) + ".new";
  {
    UniqueFd file(::openat(fd_.get(), fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return Error::System(errno, "write " + File(name));
    CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), text));
  }
  if (::renameat(fd_.get(), fresh.c_str(), fd_.get(), name) != 0) return Error::System(errno, "write " + File(name));
  return {};
}

Result<Record> SessionDirectory::ReadRecord() const {
  CAISSON_TRY(const std::string text, ReadText("session.json", kMaxRecordBytes));
  Result<Record> record = session::ReadRecord(text);
  if (!record) return std::move(record).error().In(File("session.json"));
  return record;
}

Status SessionDirectory::WriteRecord(const Record& record) const {
  return WriteText("session.json", ToJson(record).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<UniqueFd> SessionDirectory::LockAsSupervisor() const {
  CAISSON_TRY(UniqueFd file, linux_sys::OpenAt(fd_.get(), "lock", O_RDWR | O_CREAT));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) return Error::Conflict("the session " + id_ + " has a supervisor");
  return file;
}

bool SessionDirectory::HasSupervisor() const {
  const UniqueFd file(::openat(fd_.get(), "lock", O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  return file && ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Result<UniqueFd> SessionDirectory::LockForChange() const {
  CAISSON_TRY(UniqueFd file, linux_sys::OpenAt(fd_.get(), "change.lock", O_RDWR | O_CREAT));
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Error::System(errno, "lock " + path_);
  }
  return file;
}

Status SessionDirectory::Remove() const {
  CAISSON_TRY(const UniqueFd root_fd, linux_sys::Open(root(), O_RDONLY | O_DIRECTORY));
  return RemoveTree(root_fd.get(), id_);
}

Result<Record> ReadSettledRecord(const SessionDirectory& directory) {
  // The lock is looked at first: a supervisor that ends properly writes its record before it lets go of the lock.
  const bool supervised = directory.HasSupervisor();
  CAISSON_TRY(Record record, directory.ReadRecord());
  if (supervised || !IsLive(record.state)) return record;
  record.state = State::kLost;
  record.reason = "the supervisor ended without saying why; see " + directory.File("supervisor.log");
  record.ended_at = UtcNow();
  // Root may look at the sessions of others, whose record stays theirs.
  struct stat info {};
  if (::fstat(directory.fd(), &info) == 0 && info.st_uid == ::geteuid())
    CAISSON_TRY_VOID(directory.WriteRecord(record));
  return record;
}

Result<std::vector<StoredSession>> ListSessions(const std::string& root) {
  std::vector<StoredSession> sessions;
  const UniqueFd root_fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_fd && errno == ENOENT) return sessions;
  const Directory entries = root_fd ? OpenEntries(root_fd.get()) : Directory(nullptr, ::closedir);
  if (!entries) return Error::System(errno, "read " + root);
  while (const struct dirent* entry = ::readdir(entries.get())) {
    if (!IsId(entry->d_name)) continue;
    Result<SessionDirectory> directory = SessionDirectory::Open(root + "/" + entry->d_name);
    if (!directory) continue;  // removed meanwhile
    Result<Record> record = ReadSettledRecord(*directory);
    if (!record) continue;  // one that is being opened, or whose opening was interrupted
    sessions.push_back({*std::move(directory), *std::move(record)});
  }
  std::sort(sessions.begin(), sessions.end(), [](const StoredSession& one, const StoredSession& other) {
    return one.record.created_at > other.record.created_at;
  });
  return sessions;
}

Result<StoredSession> FindSession(const std::string& root, const std::string& text) {
  if (IsId(text)) {
    CAISSON_TRY(SessionDirectory directory, SessionDirectory::Open(root + "/" + text));
    CAISSON_TRY(Record record, ReadSettledRecord(directory));
    return StoredSession{std::move(directory), std::move(record)};
  }
  CAISSON_TRY(std::vector<StoredSession> sessions, ListSessions(root));
  StoredSession* named = nullptr;
  StoredSession* begun = nullptr;
  bool ambiguous = false;
  for (StoredSession& session : sessions) {
    if (session.record.name == text &&
        (named == nullptr || (!IsLive(named->record.state) && IsLive(session.record.state))))
      named = &session;
    const std::string& id = session.record.id;
    if (text.size() >= 3 && (id.compare(0, text.size(), text) == 0 || id.compare(4, text.size(), text) == 0)) {
      ambiguous = begun != nullptr;
      begun = &session;
    }
  }
  if (named != nullptr) return std::move(*named);
  if (ambiguous)
    return Error::Invalid(EscapeForTerminal(text) + ": several sessions begin like this; give more of the id");
  if (begun != nullptr) return std::move(*begun);
  return Error::NotFound("there is no session " + EscapeForTerminal(text) + " (see: caisson session list)");
}

bool IsSessionName(std::string_view name) {
  if (name.empty() || name.size() > 64 || name.substr(0, 4) == kIdPrefix) return false;
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789._-") != std::string_view::npos) return false;
  return name[0] != '.' && name[0] != '_' && name[0] != '-';
}

Result<UniqueFd> LockNames(const std::string& root) {
  CAISSON_TRY(UniqueFd file, linux_sys::Open(root + "/names.lock", O_RDWR | O_CREAT));
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Error::System(errno, "lock " + root);
  }
  return file;
}

Result<std::string> ChooseName(const std::string& root, const std::string& wanted, const std::string& project) {
  CAISSON_TRY(const std::vector<StoredSession> sessions, ListSessions(root));
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(sessions.begin(), sessions.end(), [&](const StoredSession& session) {
      return IsLive(session.record.state) && session.record.name == name;
    });
  };
  if (!wanted.empty()) {
    if (is_taken(wanted)) return Error::Conflict("there is a session named " + wanted + ": choose another --name");
    return wanted;
  }
  const std::string base = SafeName(project);
  std::string name = base;
  for (int number = 2; is_taken(name); ++number) name = base + "-" + std::to_string(number);
  return name;
}

Status RemoveTree(int parent, const std::string& top) {
  // Each level's directory is open, so that no name is ever walked twice. A tree that is too deep for that is moved up
  // piece by piece: what is below the deepest open level becomes a child of `parent`.
  constexpr size_t kDeepest = 200;
  std::vector<Level> levels;
  const auto enter = [&](int in, const std::string& name) -> Status {
    struct stat info {};
    if (::fstatat(in, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode) &&
        (info.st_mode & 0700) != 0700) {
      ::fchmodat(in, name.c_str(), 0700, 0);
    }
    Level level;
    level.fd.Reset(::openat(in, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!level.fd) return Error::System(errno, "remove " + EscapeForTerminal(name));
    level.entries = OpenEntries(level.fd.get());
    if (!level.entries) return Error::System(errno, "remove " + EscapeForTerminal(name));
    level.name = name;
    levels.push_back(std::move(level));
    return {};
  };
  if (::unlinkat(parent, top.c_str(), 0) == 0 || errno == ENOENT) return {};
  CAISSON_TRY_VOID(enter(parent, top));
  std::vector<std::string> moved;
  size_t moves = 0;
  while (!levels.empty()) {
    Level& level = levels.back();
    const struct dirent* entry = ::readdir(level.entries.get());
    if (entry == nullptr) {
      const std::string name = level.name;
      levels.pop_back();
      const int in = levels.empty() ? parent : levels.back().fd.get();
      if (::unlinkat(in, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
        return Error::System(errno, "remove " + EscapeForTerminal(name));
      if (levels.empty() && !moved.empty()) {
        const std::string next = moved.back();
        moved.pop_back();
        CAISSON_TRY_VOID(enter(parent, next));
      }
      continue;
    }
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (::unlinkat(level.fd.get(), name.c_str(), 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM && errno != EACCES)
      return Error::System(errno, "remove " + EscapeForTerminal(name));
    if (levels.size() < kDeepest) {
      CAISSON_TRY_VOID(enter(level.fd.get(), name));
      continue;
    }
    const std::string place = top + ".deep" + std::to_string(moves++);
    if (::renameat(level.fd.get(), name.c_str(), parent, place.c_str()) != 0)
      return Error::System(errno, "remove " + EscapeForTerminal(name));
    moved.push_back(place);
  }
  return {};
}

}  // namespace caisson::session
