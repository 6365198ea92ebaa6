#include "sandbox/inside_paths.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <deque>
#include <iterator>
#include <string_view>
#include <vector>

#include "linux/files.h"
#include "linux/syscalls.h"

namespace caisson::sandbox {

namespace {

std::string ReadLink(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof(target));
  return length < 0 ? std::string() : std::string(target, static_cast<size_t>(length));
}

InsidePaths::Resolved FromKernelName(std::string name) {
  InsidePaths::Resolved resolved;
  constexpr std::string_view kDeleted = " (deleted)";
  if (name.size() > kDeleted.size() && std::string_view(name).substr(name.size() - kDeleted.size()) == kDeleted) {
    name.resize(name.size() - kDeleted.size());
  }
  resolved.is_file_system = !name.empty() && name[0] == '/' && name.compare(0, 7, "/memfd:") != 0;
  resolved.exists = true;
  resolved.path = std::move(name);
  return resolved;
}

constexpr int kMaxLinks = 40;  // as the kernel has it

void PushComponents(std::deque<std::string>& components, std::string_view path) {
  std::deque<std::string> parts;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  components.insert(components.begin(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
}

bool IsProc(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
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

std::string InsidePaths::DirectoryOf(pid_t pid, int dir_fd) const {
  const std::string process = "/proc/" + std::to_string(pid);
  // The kernel names a path of another mount namespace from that namespace's root, which is what we want.
  return ReadLink(dir_fd == AT_FDCWD ? process + "/cwd" : process + "/fd/" + std::to_string(dir_fd));
}

InsidePaths::Resolved InsidePaths::OfDescriptor(pid_t pid, int fd) const {
  return FromKernelName(ReadLink("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd)));
}

InsidePaths::Resolved InsidePaths::Resolve(pid_t pid, const std::string& base, const std::string& path,
                                           bool follow_last) const {
  const std::string full = path[0] == '/' ? path : base + "/" + path;
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC | (follow_last ? 0 : O_NOFOLLOW);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  // Mostly there is no link on the way, and then the file is where the text says, whether it exists or is about to be
  // made. "link/.." means the parent of the link's target, so a text with ".." is left to the kernel.
  if (full.find("/..") == std::string::npos) {
    struct open_how plain = how;
    plain.resolve |= RESOLVE_NO_SYMLINKS;
    const UniqueFd found(linux_sys::OpenAt2(root_.get(), full.c_str(), plain));
    if (found || errno == ENOENT) return {NormalizePath(full), found.valid()};
  }
  const UniqueFd found(linux_sys::OpenAt2(root_.get(), full.c_str(), how));
  if (found) return FromKernelName(ReadLink("/proc/self/fd/" + std::to_string(found.get())));
  return Walk(pid, full, follow_last);
}

InsidePaths::Resolved InsidePaths::Walk(pid_t pid, const std::string& path, bool follow_last) const {
  std::deque<std::string> pending;
  PushComponents(pending, path);
  std::string current;  // resolved so far; "" is the root
  Resolved resolved;
  for (int links = 0; !pending.empty();) {
    std::string name = std::move(pending.front());
    pending.pop_front();
    if (name == "..") {
      current.resize(current.empty() ? 0 : current.rfind('/'));
      continue;
    }
    // These two mean the process that looks, and it is not we who look.
    if (current == "/proc" && name == "self") name = std::to_string(InsidePid(pid));
    if (current == "/proc" && name == "thread-self") name = std::to_string(InsidePid(pid));
    const std::string candidate = current + "/" + name;
    struct open_how how {};
    how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    UniqueFd found(linux_sys::OpenAt2(root_.get(), candidate.c_str(), how));
    struct stat info {};
    if (!found || ::fstat(found.get(), &info) != 0) {
      resolved.path = candidate;
      for (const std::string& rest : pending) resolved.path += "/" + rest;
      resolved.path = NormalizePath(resolved.path);
      return resolved;
    }
    current = candidate;
    if (!S_ISLNK(info.st_mode) || (pending.empty() && !follow_last)) continue;
    char target[PATH_MAX];
    const ssize_t length = ::readlinkat(found.get(), "", target, sizeof(target));
    if (length <= 0 || ++links > kMaxLinks) break;
    const std::string text(target, static_cast<size_t>(length));
    if (text[0] != '/' && IsProc(found.get()) && text.find(':') != std::string::npos) return FromKernelName(text);
    current = text[0] == '/' ? "" : current.substr(0, current.rfind('/'));
    PushComponents(pending, IsProc(found.get()) ? FromKernelName(text).path : text);
  }
  resolved.path = current.empty() ? "/" : current;
  resolved.exists = true;
  return resolved;
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
