#include "runtime/engine/state.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "linux/files.h"
#include "linux/syscalls.h"
#include "runtime/engine/owner.h"
#include "sandbox/idmap.h"

namespace caisson::runtime::engine {

namespace {

constexpr char kNamePrefix[] = "caisson-";
constexpr size_t kMostSwept = 64;
constexpr int kCleanupAttempts = 3;
// A container of Caisson's is stopped for moments only. One that is stopped this long is left over, even if its
// owner is not known.
constexpr int64_t kStoppedTooLongS = 600;

std::string BaseDirectory() {
  if (::geteuid() == 0) return "/run/caisson-container";
  const char* own = std::getenv("XDG_RUNTIME_DIR");
  if (own != nullptr && *own == '/') return std::string(own) + "/caisson-container";
  return "/tmp/caisson-container-" + std::to_string(::geteuid());
}

Status MakeBase(const std::string& base) {
  if (::mkdir(base.c_str(), 0711) != 0 && errno != EEXIST) return Error::System(errno, "make " + base);
  struct stat info {};
  if (::lstat(base.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 022) != 0)
    return Error::Denied(base + ": not a directory that only this user can write");
  return {};
}

// System calls only. What is mounted goes first: nothing of a host's tree is ever removed.
void RemovePlace(const char* path) {
  while (::umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
  if (::unlink(path) != 0) ::rmdir(path);
}

// The directories of processes that are dead; each has places and nothing else in it.
void SweepDirectories(const std::string& base) {
  std::error_code error;
  size_t looked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    int64_t pid = 0, started = 0;
    if (name.rfind(kNamePrefix, 0) != 0) continue;
    const char* const end = name.data() + name.size();
    auto read = std::from_chars(name.data() + std::strlen(kNamePrefix), end, pid);
    if (read.ec != std::errc() || read.ptr == end || *read.ptr != '-') continue;
    read = std::from_chars(read.ptr + 1, end, started);
    if (read.ec != std::errc() || FateOf(pid, started) != Fate::kDead) continue;
    if (++looked > kMostSwept) return;
    std::vector<std::string> places;
    std::error_code ignored;
    for (const auto& place : std::filesystem::directory_iterator(entry.path(), ignored))
      places.push_back(place.path().string());
    for (const std::string& place : places) RemovePlace(place.c_str());
    ::rmdir(entry.path().c_str());
  }
}

Status SweepContainers(const Api& api, const Owner& self) {
  CAISSON_TRY(const std::vector<ListedContainer> owned, api.ListOwned());
  size_t removed = 0;
  for (const ListedContainer& container : owned) {
    const std::optional<Owner> owner = ParseOwner(container.owner);
    const Fate fate = owner ? FateOf(*owner, self) : Fate::kUnknown;
    const bool forgotten = !container.running && ::time(nullptr) - container.created_s > kStoppedTooLongS;
    if (fate != Fate::kDead && (fate == Fate::kAlive || !forgotten)) continue;
    if (++removed > kMostSwept) break;
    (void)api.Remove(container.id);  // another start may be removing it at the same time
  }
  return {};
}

Result<std::string> RandomHex() {
  unsigned char bytes[8];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return Error::System(errno, "read random bytes");
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

// True when the engine has answered that it removed the container. System calls only.
bool AskToRemove(const struct sockaddr_un& address, const char* request, size_t size) {
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return false;
  const struct timeval patience { 30, 0 };
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char answer[64] = {};
  const bool removed =
      ::connect(connection, reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(connection, request, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size) &&
      ::recv(connection, answer, sizeof(answer) - 1, 0) >= 12 && std::memcmp(answer + 9, "204", 3) == 0;
  ::close(connection);
  return removed;
}

}  // namespace

State::State(const Api& api, std::string name, std::string owner)
    : api_(api), name_(std::move(name)), owner_(std::move(owner)), directory_(BaseDirectory() + "/" + name_) {}

Result<std::unique_ptr<State>> State::Make(const Api& api) {
  CAISSON_TRY(const Owner self, ThisProcess());
  const std::string base = BaseDirectory();
  CAISSON_TRY_VOID(MakeBase(base));
  SweepDirectories(base);
  CAISSON_TRY_VOID(SweepContainers(api, self));
  CAISSON_TRY(const std::string random, RandomHex());
  std::unique_ptr<State> state(new State(
      api, kNamePrefix + std::to_string(self.pid) + "-" + std::to_string(self.started) + "-" + random, self.ToText()));
  if (::mkdir(state->directory_.c_str(), 0711) != 0) return Error::System(errno, "make " + state->directory_);
  return state;
}

Result<std::string> State::MakePlace(bool is_directory) {
  std::string path = directory_ + "/" + std::to_string(places_.size());
  places_.push_back(path);
  if (is_directory) {
    if (::mkdir(path.c_str(), 0755) != 0) return Error::System(errno, "make " + path);
  } else {
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file) return Error::System(errno, "make " + path);
  }
  return path;
}

Result<std::string> State::AddFile(std::string_view text) {
  CAISSON_TRY(const std::string path, MakePlace(false));
  CAISSON_TRY(const UniqueFd file, linux_sys::Open(path, O_WRONLY | O_NOFOLLOW));
  if (::fchmod(file.get(), 0644) != 0) return Error::System(errno, "chmod " + path);
  CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), text));
  return path;
}

// SECURITY: the tree is cloned from the judged descriptor and mounted in a directory that only root can write; the
// engine mounts that mount.
Result<std::string> State::ShowTree(const policy::PlannedMount& planned, const policy::Limits& limits,
                                    uid_t inside_id) {
  if (::geteuid() != 0)
    return Error::Unsupported("mount " + planned.source.canonical +
                              ": the runtime container shows trees of the host only when root starts it; use native");
  struct stat info {};
  if (::fstat(planned.source.fd.get(), &info) != 0) return Error::System(errno, "stat a mount source");
  Result<UniqueFd> tree =
      sandbox::CloneWithOwner(planned.source.fd.get(), {info.st_uid, info.st_gid}, {inside_id, inside_id});
  if (!tree) return std::move(tree).error().In("mount " + planned.source.canonical);
  struct mount_attr attributes {};
  attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  attributes.propagation = MS_PRIVATE;
  if (planned.access != policy::Access::kReadWrite) attributes.attr_set |= MOUNT_ATTR_RDONLY;
  if (::mount_setattr(tree->get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes)) != 0)
    return Error::System(errno, "mount " + planned.source.canonical);
  CAISSON_TRY(const std::string place, MakePlace(planned.source.is_directory));
  if (::move_mount(tree->get(), "", AT_FDCWD, place.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return Error::System(errno, "mount " + planned.source.canonical);
  if (planned.access != policy::Access::kCopyOnWrite) return place;
  if (!planned.source.is_directory)
    return Error::Unsupported("mount " + planned.source.canonical + ": only a directory can be copied on write");
  return AddOverlay(place, limits, inside_id);
}

Result<std::string> State::AddOverlay(const std::string& lower, const policy::Limits& limits, uid_t inside_id) {
  CAISSON_TRY(const std::string changes, MakePlace(true));
  CAISSON_TRY(const std::string merged, MakePlace(true));
  const std::string options =
      "mode=0755,size=" + std::to_string(limits.scratch_bytes) + ",nr_inodes=" + std::to_string(limits.scratch_inodes);
  if (::mount("tmpfs", changes.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    return Error::System(errno, "mount the changes of a copy on write");
  for (const char* part : {"/upper", "/work"}) {
    const std::string path = changes + part;
    if (::mkdir(path.c_str(), 0755) != 0 || ::chown(path.c_str(), inside_id, inside_id) != 0)
      return Error::System(errno, "make " + path);
  }
  const std::string layers = "lowerdir=" + lower + ",upperdir=" + changes + "/upper,workdir=" + changes + "/work";
  if (::mount("overlay", merged.c_str(), "overlay", MS_NOSUID | MS_NODEV, layers.c_str()) != 0)
    return Error::System(errno, "mount a copy on write");
  return merged;
}

Status State::StartCleanup() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make the cleanup's pipe");
  const UniqueFd read_end(ends[0]);
  alive_ = UniqueFd(ends[1]);
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, api_.socket().data(), std::min(api_.socket().size(), sizeof(address.sun_path) - 1));
  const std::string request = Api::RemoveRequest(name_);
  const int kept = read_end.get();
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  cleanup_ = ::fork();
  if (cleanup_ == 0) {
    // Only system calls from here on: other threads of the parent may have held locks.
    ::setsid();
    ::prctl(PR_SET_NAME, "caisson-cleanup", 0, 0, 0);
    if (kept > 0) ::close_range(0, static_cast<unsigned>(kept) - 1, 0);
    ::close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
    char nothing;
    while (::read(kept, &nothing, 1) < 0 && errno == EINTR) {
    }
    // More than once: the engine may still be creating the container that it does not know yet.
    for (int attempt = 0; attempt < kCleanupAttempts; ++attempt) {
      if (AskToRemove(address, request.data(), request.size())) break;
      const struct timespec pause { 1, 0 };
      ::nanosleep(&pause, nullptr);
    }
    for (auto place = places_.rbegin(); place != places_.rend(); ++place) RemovePlace(place->c_str());
    ::rmdir(directory_.c_str());
    ::_exit(0);
  }
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return cleanup_ < 0 ? Status(Error::System(error, "start the cleanup")) : Status();
}

void State::HideTrees() {
  for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
    while (::umount2(place->c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
    }
  }
}

void State::RemoveContainer() { (void)api_.Remove(name_); }

State::~State() {
  if (cleanup_ > 0) RemoveContainer();  // else none was created
  for (auto place = places_.rbegin(); place != places_.rend(); ++place) RemovePlace(place->c_str());
  ::rmdir(directory_.c_str());
  if (cleanup_ <= 0) return;
  ::kill(cleanup_, SIGKILL);
  while (::waitpid(cleanup_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace caisson::runtime::engine
