#include "policy/path_policy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "linux/syscalls.h"

namespace caisson::policy {

namespace {

constexpr const char* kSensitiveTrees[] = {
    "/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/var/lib/docker", "/var/lib/containerd", "/var/lib/caisson"};
// Below anybody's home, wherever homes are.
constexpr const char* kCredentialDirectories[] = {".ssh",  ".gnupg",  ".aws",          ".azure",
                                                  ".kube", ".docker", ".config/gcloud"};

bool IsBelow(const std::string& path, const std::string& prefix) {
  return path.compare(0, prefix.size(), prefix) == 0 && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

// The rule that refuses `path`, or "".
std::string RefusingRule(const std::string& path, int fd) {
  if (path == "/") return "the whole host";
  for (const char* tree : kSensitiveTrees) {
    if (IsBelow(path, tree)) return std::string("below ") + tree;
    if (IsBelow(tree, path)) return std::string("contains ") + tree;
  }
  for (const char* name : kCredentialDirectories) {
    if ((path + "/").find(std::string("/") + name + "/") != std::string::npos)
      return std::string("credentials in ") + name;
    struct stat info {};
    if (::fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0) return std::string("contains credentials in ") + name;
  }
  return "";
}

}  // namespace

Result<JudgedPath> OpenJudged(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return Error::Invalid("a path is empty or holds a NUL byte");
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_MAGICLINKS;  // /proc/self/root and friends name things no path of the user's names
  JudgedPath judged;
  judged.fd = UniqueFd(linux_sys::OpenAt2(AT_FDCWD, path.c_str(), how));
  if (!judged.fd) {
    if (errno == ELOOP)
      return Error::Denied(path + ": leads through a magic link of /proc or a loop of symbolic links");
    return Error::Invalid(path + ": " + std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(judged.fd.get(), &info) != 0) return Error::System(errno, "stat " + path);
  judged.is_directory = S_ISDIR(info.st_mode);
  if (!judged.is_directory && !S_ISREG(info.st_mode)) {
    return Error::Denied(path + ": neither a regular file nor a directory; sockets, devices and pipes are never shown");
  }
  char name[PATH_MAX];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(judged.fd.get())).c_str(), name, sizeof(name));
  if (length <= 0 || name[0] != '/') return Error::System(errno, "find the real name of " + path);
  judged.canonical.assign(name, static_cast<size_t>(length));
  if (const std::string rule = RefusingRule(judged.canonical, judged.fd.get()); !rule.empty()) {
    return Error::Denied(path + ": refused by path policy (" + rule +
                         "); choose a directory that holds only what the workload needs");
  }
  return judged;
}

}  // namespace caisson::policy
