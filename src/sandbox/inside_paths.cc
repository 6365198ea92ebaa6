#include "sandbox/inside_paths.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <deque>
#include <iterator>
#include <string_view>
#include <vector>

#include "linux/files.h"
#include "linux/syscalls.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

constexpr int kMaxLinks = 40;  // the kernel's own limit
// Bounds the cost of one call: an ordinary path takes a few steps; only a path made to be expensive takes thousands.
constexpr int kMaxSteps = 4096;
constexpr std::string_view kDeleted = " (deleted)";

bool IsDeleted(std::string_view name) {
  return name.size() > kDeleted.size() && name.substr(name.size() - kDeleted.size()) == kDeleted;
}

// Returns the target of a link, or "" with errno when it cannot be read. The kernel names a path of another mount
// namespace from that namespace's root, as needed here.
std::string ReadLink(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof(target));
  return length < 0 ? std::string() : std::string(target, static_cast<size_t>(length));
}

std::string DescriptorLink(pid_t pid, int fd) {
  const std::string process = "/proc/" + std::to_string(pid);
  return fd == AT_FDCWD ? process + "/cwd" : process + "/fd/" + std::to_string(fd);
}

InsidePaths::Resolved FromKernelName(std::string name) {
  InsidePaths::Resolved resolved;
  if (IsDeleted(name)) name.resize(name.size() - kDeleted.size());
  resolved.is_file_system = !name.empty() && name[0] == '/' && name.compare(0, 7, "/memfd:") != 0;
  resolved.presence = InsidePaths::Presence::kThere;
  resolved.path = std::move(name);
  return resolved;
}

InsidePaths::Resolved Unnamed() {
  InsidePaths::Resolved resolved;
  resolved.named = false;
  return resolved;
}

// The call fails with `error` before it reaches any file.
InsidePaths::Resolved Refused(int error) {
  InsidePaths::Resolved resolved;
  resolved.error = error;
  return resolved;
}

// The descriptor is not open, or we may not inspect the process.
InsidePaths::Resolved FromFailedLink(int error) { return error == ENOENT ? Refused(EBADF) : Unnamed(); }

using Components = std::deque<std::string>;

void PushComponents(Components& components, std::string_view path) {
  Components parts;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  components.insert(components.begin(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
}

std::string Join(Components::const_iterator from, Components::const_iterator to) {
  std::string joined;
  for (; from != to; ++from) joined.append(joined.empty() ? "" : "/").append(*from);
  return joined;
}

// Enters all components but the last at once, which works only if none of them is a link.
void Leap(UniqueFd& current, Components& pending) {
  if (pending.size() < 3 || std::find(pending.begin(), pending.end(), "..") != pending.end()) return;
  const std::string parents = Join(pending.begin(), pending.end() - 1);
  if (parents.size() >= PATH_MAX) return;
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC | O_DIRECTORY;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  UniqueFd parent(linux_sys::OpenAt2(current.get(), parents.c_str(), how));
  if (!parent) return;
  current = std::move(parent);
  pending.erase(pending.begin(), pending.end() - 1);
}

bool IsProc(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

bool IsProcRoot(int fd) {
  constexpr ino_t kProcRoot = 1;
  struct stat info {};
  return IsProc(fd) && ::fstat(fd, &info) == 0 && info.st_ino == kProcRoot;
}

bool IsSame(int a, int b) {
  struct stat left {
  }, right{};
  return ::fstat(a, &left) == 0 && ::fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
         left.st_ino == right.st_ino;
}

uint64_t MountId(int dir_fd, const char* path) {
  struct statx info {};
  if (::statx(dir_fd, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &info) != 0) return 0;
  return (info.stx_mask & STATX_MNT_ID) != 0 ? info.stx_mnt_id : 0;
}

}  // namespace

std::string NormalizePath(const std::string& path) {
  std::vector<std::string_view> parts;
  std::string_view rest(path);
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
      continue;
    }
    parts.push_back(part);
  }
  std::string normal;
  for (const std::string_view part : parts) normal.append("/").append(part);
  return normal.empty() ? "/" : normal;
}

bool IsBelow(const std::string& path, const std::string& prefix) {
  return path.size() >= prefix.size() && path.compare(0, prefix.size(), prefix) == 0 &&
         (path.size() == prefix.size() || path[prefix.size()] == '/' || prefix == "/");
}

InsidePaths::Resolved InsidePaths::NameOf(int fd) const {
  std::string name = ReadLink("/proc/self/fd/" + std::to_string(fd));
  if (!name.empty()) return FromKernelName(std::move(name));
  const uint64_t mount = MountId(fd, "");
  for (const std::string& place : places_) {
    if (mount == 0 || MountId(root_.get(), place.c_str() + 1) != mount) continue;
    Resolved resolved;
    resolved.path = place + "/…";
    resolved.presence = Presence::kThere;
    return resolved;
  }
  return Unnamed();
}

InsidePaths::Resolved InsidePaths::OfDescriptor(pid_t pid, int fd) const {
  const std::string link = DescriptorLink(pid, fd);
  std::string name = ReadLink(link);
  if (!name.empty()) return FromKernelName(std::move(name));
  if (errno != ENAMETOOLONG) return FromFailedLink(errno);
  const UniqueFd file(::open(link.c_str(), O_PATH | O_CLOEXEC));
  return file ? NameOf(file.get()) : Unnamed();
}

InsidePaths::Resolved InsidePaths::Resolve(const From& from, const std::string& path, bool follow_last) const {
  const bool from_root = path[0] == '/' && !from.in_root;
  std::string full = path;
  if (!from_root) {
    full = ReadLink(DescriptorLink(from.pid, from.dir_fd));
    if (full.empty() && errno != ENAMETOOLONG) return FromFailedLink(errno);
    if (!full.empty() && full[0] != '/') return Refused(ENOTDIR);
    if (!full.empty()) full += "/" + path;
  }
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("unnamed_paths") && full.empty()) return {{}, Presence::kMissing, false};
#endif
  // A path that no text can name must be walked.
  if (from.in_root || full.empty() || full.size() >= PATH_MAX || full.find(kDeleted) != std::string::npos) {
    return Walk(from, path, follow_last);
  }
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC | (follow_last ? 0 : O_NOFOLLOW);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  // Usually no component is a link, and then the file is where the text says, whether it exists or is about to be
  // created. "link/.." means the parent of the link's target, so the kernel resolves a text with "..".
  if (full.find("/..") == std::string::npos) {
    struct open_how plain = how;
    plain.resolve |= RESOLVE_NO_SYMLINKS;
    const UniqueFd found(linux_sys::OpenAt2(root_.get(), full.c_str(), plain));
    if (found || errno == ENOENT) return {NormalizePath(full), found ? Presence::kThere : Presence::kMissing};
  }
  const UniqueFd found(linux_sys::OpenAt2(root_.get(), full.c_str(), how));
  return found ? NameOf(found.get()) : Walk(from, path, follow_last);
}

InsidePaths::Resolved InsidePaths::Walk(const From& from, const std::string& path, bool follow_last) const {
  const bool from_root = path[0] == '/' && !from.in_root;
  UniqueFd start(from_root ? -1 : ::open(DescriptorLink(from.pid, from.dir_fd).c_str(), O_PATH | O_CLOEXEC));
  if (!from_root && !start) return FromFailedLink(errno);
  const int top = from.in_root ? start.get() : root_.get();
  UniqueFd current(::fcntl(from_root ? root_.get() : start.get(), F_DUPFD_CLOEXEC, 3));
  Components pending;
  PushComponents(pending, path);
  Leap(current, pending);
  for (int links = 0, steps = 0; !pending.empty(); ++steps) {
    if (steps > kMaxSteps || !current) return Unnamed();
    std::string name = std::move(pending.front());
    pending.pop_front();
    if (name == ".." && IsSame(current.get(), top)) continue;
    // These two names mean the process that looks them up, which is the workload's process and not ours.
    if ((name == "self" || name == "thread-self") && IsProcRoot(current.get())) {
      name = std::to_string(InsidePid(from.pid));
    }
    UniqueFd found(::openat(current.get(), name.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
    struct stat info {};
    if (!found || ::fstat(found.get(), &info) != 0) {
      const bool missing = errno == ENOENT || errno == ENOTDIR;
      Resolved resolved = NameOf(current.get());
      pending.push_front(std::move(name));
      resolved.path = NormalizePath(resolved.path + "/" + Join(pending.begin(), pending.end()));
      resolved.presence = missing ? Presence::kMissing : Presence::kUnknown;
      return resolved;
    }
    if (!S_ISLNK(info.st_mode) || (pending.empty() && !follow_last)) {
      current = std::move(found);
      continue;
    }
    if (++links > kMaxLinks) return Refused(ELOOP);
    char target[PATH_MAX];
    const ssize_t length = ::readlinkat(found.get(), "", target, sizeof(target));
    const std::string_view text(target, static_cast<size_t>(std::max<ssize_t>(length, 0)));
    // The links of /proc/PID lead to the open file itself, whatever their text says.
    if (IsProc(found.get()) && (text.empty() || text[0] == '/' || text.find_first_of(":(") != text.npos)) {
      current = UniqueFd(::openat(current.get(), name.c_str(), O_PATH | O_CLOEXEC));
      continue;
    }
    if (text.empty()) return Unnamed();
    if (text[0] == '/') current = UniqueFd(::fcntl(top, F_DUPFD_CLOEXEC, 3));
    PushComponents(pending, text);
    Leap(current, pending);
  }
  return current ? NameOf(current.get()) : Unnamed();
}

pid_t InsidePid(pid_t pid) {
  const Result<std::string> status =
      linux_sys::ReadSmallFile(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/status").c_str(), 8192);
  if (!status) return 0;
  const size_t line = status->find("\nNSpid:");
  if (line == std::string::npos) return 0;
  const size_t end = status->find('\n', line + 1);
  const size_t last = status->find_last_of(" \t", end - 1) + 1;
  pid_t inside = 0;
  std::from_chars(status->data() + last, status->data() + end, inside);
  return inside;
}

}  // namespace caisson::sandbox
