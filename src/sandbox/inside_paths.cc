#include "sandbox/inside_paths.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <string_view>
#include <vector>

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

// The descriptor number in "/proc/self/fd/7", "/proc/123/fd/7", "/dev/fd/7" or "/dev/stdout"; -1 for any other path.
int DescriptorNamedBy(const std::string& path) {
  if (path == "/dev/stdin") return 0;
  if (path == "/dev/stdout") return 1;
  if (path == "/dev/stderr") return 2;
  size_t digits = std::string::npos;
  if (path.compare(0, 8, "/dev/fd/") == 0) digits = 8;
  if (path.compare(0, 6, "/proc/") == 0) {
    const size_t fd = path.find("/fd/");
    if (fd != std::string::npos) digits = fd + 4;
  }
  if (digits == std::string::npos || digits >= path.size()) return -1;
  int number = -1;
  const auto parsed = std::from_chars(path.data() + digits, path.data() + path.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == path.data() + path.size() ? number : -1;
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
  const std::string normal = NormalizePath(full);
  if (const int descriptor = DescriptorNamedBy(normal); descriptor >= 0) return OfDescriptor(pid, descriptor);

  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC | (follow_last ? 0 : O_NOFOLLOW);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  // Not the normalised text: "link/.." means the parent of the link's target.
  UniqueFd found(linux_sys::OpenAt2(root_.get(), full.c_str(), how));
  if (found) return FromKernelName(ReadLink("/proc/self/fd/" + std::to_string(found.get())));

  const size_t slash =
      full.find_last_not_of('/') == std::string::npos ? 0 : full.rfind('/', full.find_last_not_of('/'));
  const std::string parent = slash == 0 || slash == std::string::npos ? "/" : full.substr(0, slash);
  how.flags = O_PATH | O_CLOEXEC | O_DIRECTORY;
  UniqueFd directory(linux_sys::OpenAt2(root_.get(), parent.c_str(), how));
  Resolved resolved;
  resolved.path = normal;
  if (directory) {
    const std::string real_parent = ReadLink("/proc/self/fd/" + std::to_string(directory.get()));
    resolved.path = NormalizePath(real_parent + full.substr(slash));
  }
  return resolved;
}

}  // namespace caisson::sandbox
