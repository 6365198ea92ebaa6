#include "runtime/engine/report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "linux/files.h"
#include "linux/syscalls.h"
#include "runtime/engine/engine.h"
#include "runtime/witnessed/inside_namespace.h"
#include "sandbox/walls.h"

namespace caisson::runtime::engine {

namespace {

Error Missing(const std::string& wall) {
  return Error::System(EPROTO, "wall " + wall + ": the container runs and does not stand behind it");
}

bool Lists(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// The interfaces in /proc/PID/net/dev, which has two lines of headings.
bool HasOnlyLoopback(std::string_view text) {
  bool loopback = false;
  for (int line = 0; !text.empty(); ++line) {
    const std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), row.size() + 1));
    if (line < 2 || row.empty()) continue;
    const size_t colon = row.find(':');
    if (colon == row.npos || row.substr(0, colon).find_first_not_of(' ') == row.npos) return false;
    if (row.substr(row.find_first_not_of(' '), colon - row.find_first_not_of(' ')) != "lo") return false;
    loopback = true;
  }
  return loopback;
}

// What an engine shows at a path must be what was named, and read-only where that was asked for.
Status CheckShown(int root, const ShownPath& path) {
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const UniqueFd shown(linux_sys::OpenAt2(root, path.target.c_str(), how));
  struct stat info {};
  struct statvfs flags {};
  if (!shown || ::fstat(shown.get(), &info) != 0 || ::fstatvfs(shown.get(), &flags) != 0)
    return Error::System(errno, "look at " + path.target + " in the container");
  if (info.st_dev != path.device || info.st_ino != path.inode)
    return Error::System(EPROTO, "wall mounts: the engine shows something else at " + path.target +
                                     "; does it see the same file systems as this process?");
  if (!path.writable && (flags.f_flag & ST_RDONLY) == 0) return Missing("mounts: " + path.target + " is writable");
  return {};
}

class Reporter {
 public:
  Reporter(const AttachedContainer& container, const ReportTerms& terms, const agent::Ready& ready)
      : container_(container), terms_(terms), ready_(ready), seen_(container.pid() > 0 && ::geteuid() == 0) {}

  Result<IsolationReport> Describe() {
    CAISSON_TRY_VOID(CheckTold());
    CAISSON_TRY_VOID(CheckLimits());
    if (seen_) CAISSON_TRY_VOID(CheckSeen());
    return Report();
  }

 private:
  bool HasOwn(const char* name) const { return Lists(walls_.namespaces, name); }

  // What the agent found before any command ran.
  Status CheckTold() const {
    if (!ready_.no_new_privileges) return Missing("no_new_privileges");
    if (ready_.capabilities != 0) return Missing("capabilities");
    if (!ready_.read_only_root) return Missing("read_only_root");
    if (!ready_.only_loopback) return Missing("namespaces.network: it has an interface besides the loopback");
    if (!ready_.filter) return Missing("seccomp");
    return {};
  }

  Status CheckSeen() {
    const std::string process = "/proc/" + std::to_string(container_.pid());
    CAISSON_TRY(const UniqueFd root, linux_sys::Open(process + "/root", O_PATH | O_DIRECTORY));
    CAISSON_TRY(walls_, sandbox::ReadWalls(container_.pid(), root.get()));
    for (const char* name : {"pid", "mount", "network", "ipc", "uts"}) {
      if (!HasOwn(name)) return Missing(std::string("namespaces.") + name);
    }
    CAISSON_TRY(const std::string interfaces, linux_sys::ReadSmallFile(AT_FDCWD, (process + "/net/dev").c_str()));
    if (!HasOnlyLoopback(interfaces)) return Missing("namespaces.network: it has an interface besides the loopback");
    if (terms_.maps_ids ? !HasOwn("user") : walls_.host_uid != terms_.user_id) return Missing("id_range");
    if (!walls_.no_new_privileges) return Missing("no_new_privileges");
    if (walls_.capabilities != 0) return Missing("capabilities");
    if (!walls_.read_only_root) return Missing("read_only_root");
    for (const ShownPath& path : terms_.shown) CAISSON_TRY_VOID(CheckShown(root.get(), path));
    if (terms_.seal_workspace) CAISSON_TRY_VOID(witnessed::SealWorkspace(container_.pid()));
    return {};
  }

  Status CheckLimits() const {
    if (!container_.group()) return {};
    const witnessed::CgroupCounters& group = *container_.group();
    // The kernel rounds down to pages.
    if (group.ReadMemoryLimit() < 0 || group.ReadMemoryLimit() > terms_.limits.memory_bytes)
      return Missing("limits.memory_bytes");
    if (group.ReadProcessLimit() != terms_.limits.processes) return Missing("limits.processes");
    if (!group.HasCpuLimit()) return Missing("limits.cpu");
    return {};
  }

  IsolationReport Report() {
    const policy::RuntimeDescription description = DescribeEngine();
    const policy::Profile& profile = terms_.profile;
    // An engine always makes these; the agent is PID 1 and found no interface but the loopback.
    if (!seen_) walls_.namespaces = {"pid", "mount", "network", "ipc", "uts"};
    if (!seen_ && terms_.maps_ids) walls_.namespaces.insert(walls_.namespaces.begin(), "user");
    IsolationReport report;
    report.runtime = description.name;
    report.namespaces = walls_.namespaces;
    report.seccomp_profile = profile.seccomp.filter;
    const std::string filter = profile.seccomp.filter + (container_.group() ? "" : "-watched");
    const sandbox::SeccompProgram* program = sandbox::FindSeccompProgram(filter.c_str());
    report.seccomp_sha256 = program != nullptr ? program->sha256 : "";
    report.landlock_abi = ready_.landlock_abi;
    report.cgroup_driver = container_.group() ? container_.group()->driver() : "none";
    report.host_uid = seen_ ? int64_t{walls_.host_uid} : int64_t{terms_.user_id};
    report.no_new_privileges = ready_.no_new_privileges;
    report.degraded = ready_.degraded;
    ListLosses(report.degraded);
    report.degraded.insert(report.degraded.end(), terms_.given_up.begin(), terms_.given_up.end());
    report.cannot_observe = description.CannotObserve();
    report.walls = ListWalls();
    return report;
  }

  void ListLosses(std::vector<std::string>& degraded) const {
    const policy::Profile& profile = terms_.profile;
    if (profile.Has(policy::Namespace::kUser) && !HasOwn("user"))
      degraded.emplace_back(
          "namespaces.user: the engine makes none; its user is a number of its own without a name on the host");
    if (seen_ && profile.Has(policy::Namespace::kCgroup) && !HasOwn("cgroup"))
      degraded.emplace_back("namespaces.cgroup: the engine makes none");
    if (profile.Has(policy::Namespace::kTime)) degraded.emplace_back("namespaces.time: the runtime makes none");
    if (!seen_) {
      degraded.emplace_back(
          "walls: not seen from outside, because this user may not look into the engine's containers");
      if (terms_.seal_workspace) degraded.emplace_back("workspace: kept unchanged by Landlock alone");
    }
    if (container_.group()) return;
    degraded.emplace_back("cgroup: the engine makes none; memory, processes and CPU time are watched from inside");
    degraded.emplace_back("cpu: not limited without a cgroup");
    degraded.emplace_back(
        "kernel_memory: the kernel's small objects and shared pages that no process maps are not counted");
  }

  std::vector<Wall> ListWalls() const {
    std::vector<Wall> list;
    const auto add = [&](std::string name, bool stands, std::string evidence) {
      list.push_back({std::move(name), stands ? WallState::kEnforced : WallState::kAbsent, std::move(evidence)});
    };
    const char* const own_namespace = seen_ ? "PID 1 has one of its own" : "asked of the engine, not seen from outside";
    for (const char* name : policy::kNamespaceNames) {
      const bool own = HasOwn(name);
      add(std::string("namespaces.") + name, own, own ? own_namespace : "none of its own was seen");
    }
    add("id_range", true,
        HasOwn("user") ? "PID 1 is in the engine's range of ids" : "the user of PID 1 is a number of its own");
    const std::string where = seen_ ? "in the status of PID 1" : "in the status of PID 1, told by the agent";
    add("no_new_privileges", true, "NoNewPrivs " + where);
    add("capabilities", true, "all five sets " + where);
    add("seccomp", ready_.filter, "installed by the agent in each command's process; " + terms_.profile.seccomp.filter);
    add("landlock", ready_.landlock_abi > 0,
        ready_.landlock_abi > 0 ? "told by the agent: ABI " + std::to_string(ready_.landlock_abi)
                                : "not in this kernel or given up by the profile");
    add("read_only_root", true, seen_ ? "mount flags of the root" : "mount flags of the root, told by the agent");
    add("rlimits", true, "set by the agent in each command's process");
    for (const char* limit : {"limits.memory_bytes", "limits.processes", "limits.cpu"}) {
      if (container_.group()) {
        add(limit, true, "cgroup " + container_.group()->driver() + " has the limit");
      } else {
        const bool watched = std::string_view(limit) != "limits.cpu";
        list.push_back({limit, watched ? WallState::kWatched : WallState::kAbsent,
                        watched ? "sampled by the agent" : "the engine makes no cgroup"});
      }
    }
    return list;
  }

  const AttachedContainer& container_;
  const ReportTerms& terms_;
  const agent::Ready& ready_;
  const bool seen_;  // from outside, in the kernel; otherwise the agent told it, before any command ran
  sandbox::Walls walls_;
};

}  // namespace

Result<IsolationReport> Describe(const AttachedContainer& container, const ReportTerms& terms,
                                 const agent::Ready& ready) {
  return Reporter(container, terms, ready).Describe();
}

}  // namespace caisson::runtime::engine
