#include "policy/path_policy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "linux/syscalls.h"
#include "policy/mount_table.h"
#include "policy/syntax.h"

namespace caisson::policy {

namespace {

constexpr const char* kSensitiveTrees[] = {"/etc",
                                           "/proc",
                                           "/sys",
                                           "/dev",
                                           "/run",
                                           "/boot",
                                           "/var/lib/docker",
                                           "/var/lib/containerd",
                                           "/var/lib/containers",
                                           "/var/lib/kubelet",
                                           "/var/lib/caisson"};
// Sensitive below every home directory, wherever home directories are.
constexpr const char* kCredentialDirectories[] = {".ssh",  ".gnupg",  ".aws",          ".azure",
                                                  ".kube", ".docker", ".config/gcloud"};

// The rule that refuses the name `path`, or "".
std::string SensitiveRule(const std::string& path) {
  if (path == "/") return "the whole host";
  for (const char* tree : kSensitiveTrees) {
    if (IsAtOrBelow(path, tree)) return std::string("below ") + tree;
    if (IsAtOrBelow(tree, path)) return std::string("contains ") + tree;
  }
  for (const char* name : kCredentialDirectories) {
    if ((path + "/").find(std::string("/") + name + "/") != std::string::npos)
      return std::string("credentials in ") + name;
  }
  return "";
}

// Looks in a home directory, or in a directory of homes. A deeper directory was chosen on purpose.
std::string CredentialsIn(int fd, bool look_into_children = true) {
  for (const char* name : kCredentialDirectories) {
    struct stat info {};
    if (::fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0) return std::string("contains credentials in ") + name;
  }
  if (!look_into_children) return "";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(
      ::fdopendir(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir);
  if (!directory) return "";  // a caller that cannot list it gains nothing by mounting it
  while (const struct dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] == '.' || (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN)) continue;
    const UniqueFd child(::openat(fd, entry->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!child) continue;
    if (std::string found = CredentialsIn(child.get(), false); !found.empty()) return found + " of " + entry->d_name;
  }
  return "";
}

// The canonical path of a path in the rules; the path as spelt when it does not exist, because nothing can be below it.
std::string RealName(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  char name[PATH_MAX];
  if (!fd) return path;
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), name, sizeof(name));
  return length > 0 ? std::string(name, static_cast<size_t>(length)) : path;
}

class Judge {
 public:
  Judge(const JudgedPath& path, Access wanted, const PathRules& rules) : path_(path), wanted_(wanted), rules_(rules) {}

  // The reason to refuse, or "". `rule_` is the rule that allowed it.
  Result<std::string> Refusal() {
    CAISSON_TRY(const MountTable mounts, MountTable::Read());
    names_ = mounts.NamesOf(path_.fd.get(), path_.canonical);
    std::string refusal = JudgeSensitive(mounts);
    if (refusal.empty()) refusal = JudgeProject(mounts);
    if (refusal.empty() && wanted_ == Access::kReadWrite && !by_project_ &&
        (rules_.grants == nullptr || !rules_.grants->MayWrite(path_.canonical))) {
      refusal = "writing to the host needs a project's allowed_paths with access rw, or an override of type write_path";
    }
    return refusal;
  }

  const std::string& rule() const { return rule_; }

 private:
  std::string JudgeSensitive(const MountTable& mounts) {
    std::string refusal;
    for (const std::string& name : names_) {
      refusal = SensitiveRule(name);
      if (!refusal.empty()) {
        if (name != path_.canonical) refusal += ", as " + name;
        break;
      }
    }
    if (refusal.empty() && path_.is_directory) refusal = CredentialsIn(path_.fd.get());
    // The mounts below the path are mounted along with it.
    for (const std::vector<std::string>& below : mounts.NamesBelow(path_.canonical)) {
      for (const std::string& name : below) {
        if (refusal.empty() && !SensitiveRule(name).empty())
          refusal = "contains the mount " + below.front() + ", which is " + SensitiveRule(name);
      }
    }
    if (!refusal.empty() && rules_.grants != nullptr && rules_.grants->MayShowSensitive(path_.canonical, wanted_)) {
      rule_ = "an override of type sensitive_path";
      by_project_ = true;
      return "";
    }
    return refusal;
  }

  std::string JudgeProject(const MountTable& mounts) {
    if (by_project_) return "";
    rule_ = "not a sensitive place";
    if (rules_.project == nullptr) return "";
    const ProjectPaths& project = *rules_.project;
    const auto resolve = [&](const std::string& path) {
      return RealName(path[0] == '/' ? path : project.root_path + "/" + path);
    };
    std::vector<std::pair<std::string, const AllowedPath*>> permissions;
    for (const AllowedPath& path : project.allowed_paths) permissions.emplace_back(resolve(path.path), &path);
    // SECURITY: the most specific rule can only be found for one name at a time: when two names refer to this place, a
    // long allowed path must not outweigh a short denied one. So every name is judged, and each can refuse.
    const AllowedPath* allowed = nullptr;
    for (const std::string& name : names_) {
      size_t best = 0;
      const AllowedPath* nearest = nullptr;
      for (const auto& [real, path] : permissions) {
        if (!IsAtOrBelow(name, real) || real.size() < best) continue;
        best = real.size();
        nearest = path;
      }
      for (const std::string& candidate : project.denied_paths) {
        const std::string real = resolve(candidate);
        if (IsAtOrBelow(name, real) && real.size() >= best) return "denied_paths has " + candidate;
        if (IsAtOrBelow(real, name)) return "contains " + candidate + " of denied_paths";
      }
      if (nearest != nullptr && (allowed == nullptr || nearest->access < allowed->access)) allowed = nearest;
    }
    for (const std::string& candidate : project.denied_paths) {
      const std::string real = resolve(candidate);
      for (const std::vector<std::string>& below : mounts.NamesBelow(path_.canonical)) {
        if (std::any_of(below.begin(), below.end(), [&](const std::string& name) { return IsAtOrBelow(name, real); }))
          return "contains the mount " + below.front() + ", which lies in " + candidate + " of denied_paths";
      }
    }
    if (allowed == nullptr) return "no entry of allowed_paths covers it";
    rule_ = "allowed_paths has " + allowed->path;
    if (wanted_ > allowed->access) {
      return rule_ + " with access " + kAccessNames[static_cast<size_t>(allowed->access)] + ", not " +
             kAccessNames[static_cast<size_t>(wanted_)];
    }
    by_project_ = true;
    return "";
  }

  const JudgedPath& path_;
  Access wanted_;
  const PathRules& rules_;
  std::vector<std::string> names_;
  std::string rule_;
  bool by_project_ = false;  // a rule named the path, and the access with it
};

Result<JudgedPath> Open(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return Error::Invalid("a path is empty or holds a NUL byte");
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_MAGICLINKS;  // /proc/self/root and the like reach files that no user's path names
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
  return judged;
}

}  // namespace

Result<JudgedPath> OpenJudged(const std::string& path, Access wanted, const PathRules& rules) {
  CAISSON_TRY(JudgedPath judged, Open(path));
  CAISSON_TRY(const std::string refusal, Judge(judged, wanted, rules).Refusal());
  if (!refusal.empty()) {
    return Error::Denied(path + ": refused by path policy (" + refusal +
                         "); choose a directory that holds only what the workload needs");
  }
  return judged;
}

std::string ExplainPath(const std::string& path, Access wanted, const PathRules& rules) {
  const Result<JudgedPath> judged = Open(path);
  if (!judged) return "refused: " + judged.error().message;
  Judge judge(*judged, wanted, rules);
  const Result<std::string> refusal = judge.Refusal();
  if (!refusal) return "refused: " + refusal.error().message;
  if (!refusal->empty()) return "refused: " + judged->canonical + ": " + *refusal;
  return "allowed: " + judged->canonical + ": " + judge.rule();
}

}  // namespace caisson::policy
