#include "sandbox/walls.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "linux/files.h"

namespace caisson::sandbox {

namespace {

struct NamespaceLink {
  const char* name;
  const char* link;
};
// The time namespace is that of PID 1's children: PID 1 itself stays in the namespace in which it created theirs.
constexpr std::array<NamespaceLink, 8> kLinks = {{{"user", "ns/user"},
                                                  {"pid", "ns/pid"},
                                                  {"mount", "ns/mnt"},
                                                  {"network", "ns/net"},
                                                  {"ipc", "ns/ipc"},
                                                  {"uts", "ns/uts"},
                                                  {"cgroup", "ns/cgroup"},
                                                  {"time", "ns/time_for_children"}}};

using Identities = std::array<std::string, kLinks.size()>;

// Empty where the kernel has no such namespace or denies access.
Identities ReadNamespaces(int process) {
  Identities identities;
  for (size_t i = 0; i < kLinks.size(); ++i) {
    char target[64];
    const ssize_t size = ::readlinkat(process, kLinks[i].link, target, sizeof(target));
    if (size > 0) identities[i].assign(target, static_cast<size_t>(size));
  }
  return identities;
}

const Identities& OwnNamespaces() {
  static const Identities own = [] {
    const UniqueFd self(::open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC));
    return ReadNamespaces(self.get());
  }();
  return own;
}

// The number behind `key` in /proc/PID/status.
Result<uint64_t> FindField(std::string_view status, std::string_view key, int base) {
  const size_t at = status.find(key);
  uint64_t number = 0;
  if (at != std::string_view::npos) {
    const char* begin = status.data() + at + key.size();
    if (std::from_chars(begin, status.data() + status.size(), number, base).ec == std::errc()) return number;
  }
  return Error::System(EPROTO, "read the walls of PID 1: no " + std::string(key.substr(1)) + " in its status");
}

}  // namespace

void RememberOwnNamespaces() { OwnNamespaces(); }

Result<Walls> ReadWalls(pid_t pid, int root) {
  const std::string path = "/proc/" + std::to_string(pid);
  CAISSON_TRY(const UniqueFd process, linux_sys::Open(path, O_PATH | O_DIRECTORY));
  CAISSON_TRY(const std::string status, linux_sys::ReadSmallFile(process.get(), "status", 8192));
  Walls walls;
  CAISSON_TRY(const uint64_t uid, FindField(status, "\nUid:\t", 10));
  walls.host_uid = static_cast<uid_t>(uid);
  for (const char* set : {"\nCapInh:\t", "\nCapPrm:\t", "\nCapEff:\t", "\nCapBnd:\t", "\nCapAmb:\t"}) {
    CAISSON_TRY(const uint64_t capabilities, FindField(status, set, 16));
    walls.capabilities |= capabilities;
  }
  CAISSON_TRY(const uint64_t no_new_privileges, FindField(status, "\nNoNewPrivs:\t", 10));
  walls.no_new_privileges = no_new_privileges == 1;
  CAISSON_TRY(const uint64_t mode, FindField(status, "\nSeccomp:\t", 10));
  walls.filter = mode == 2;
  const Identities& ours = OwnNamespaces();
  const Identities its = ReadNamespaces(process.get());
  for (size_t i = 0; i < kLinks.size(); ++i) {
    if (!its[i].empty() && its[i] != ours[i]) walls.namespaces.emplace_back(kLinks[i].name);
  }
  struct statvfs info {};
  if (::fstatvfs(root, &info) != 0) return Error::System(errno, "look at the sandbox's root");
  walls.read_only_root = (info.f_flag & ST_RDONLY) != 0;
  struct rlimit files {};
  if (::prlimit(pid, RLIMIT_NOFILE, nullptr, &files) != 0) {
    // Another program's container without a user namespace, and a root without CAP_SYS_RESOURCE: not known to be
    // limited.
    if (errno != EPERM) return Error::System(errno, "read the limits of PID 1");
    files.rlim_max = RLIM_INFINITY;
  }
  walls.most_open_files = files.rlim_max == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(files.rlim_max);
  return walls;
}

std::string FindMissingWall(const Walls& walls, const Spec& spec) {
  const struct {
    const char* name;
    bool wanted;
  } namespaces[] = {{"user", true},
                    {"pid", true},
                    {"mount", true},
                    {"network", true},
                    {"ipc", !spec.share_ipc},
                    {"uts", !spec.share_uts},
                    {"cgroup", !spec.share_cgroup},
                    {"time", !spec.share_time}};
  for (const auto& one : namespaces) {
    if (one.wanted && std::find(walls.namespaces.begin(), walls.namespaces.end(), one.name) == walls.namespaces.end())
      return std::string("namespaces.") + one.name;
  }
  if (!walls.no_new_privileges) return "no_new_privileges";
  if (!walls.filter) return "seccomp";
  if (walls.capabilities != 0) return "capabilities";
  if (!walls.read_only_root) return "read_only_root";
  return "";
}

}  // namespace caisson::sandbox
