#include "runtime/oci/oci.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "linux/capability_names.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "policy/render.h"
#include "runtime/oci/bundle.h"
#include "runtime/oci/container.h"
#include "runtime/oci/program.h"
#include "runtime/oci/state.h"
#include "runtime/witnessed/agent_program.h"
#include "runtime/witnessed/cgroup_counters.h"
#include "runtime/witnessed/inside_namespace.h"
#include "runtime/witnessed/lower.h"
#include "runtime/witnessed/run.h"
#include "sandbox/walls.h"

namespace caisson::runtime::oci {

using witnessed::DoInside;
using witnessed::SealWorkspace;

namespace {

// Makes the devices and what covers files of /proc read-only, from outside: the container program mounts each node of
// the host's and the terminals writable. Writing to a device is not writing to its file system.
Status SealDevices(pid_t pid, bool writable_shm) {
  return DoInside(pid, "mnt", "devices", [writable_shm] {
    struct mount_attr attributes {};
    attributes.attr_set = MOUNT_ATTR_RDONLY;
    for (const char* tree : {"/dev", "/proc"}) {
      if (::mount_setattr(AT_FDCWD, tree, AT_RECURSIVE, &attributes, sizeof(attributes)) != 0) return false;
    }
    attributes = {};
    attributes.attr_clr = MOUNT_ATTR_RDONLY;
    return !writable_shm || ::mount_setattr(AT_FDCWD, "/dev/shm", 0, &attributes, sizeof(attributes)) == 0;
  });
}

// The program of the agent, which runs, is shown no longer: its path on the host would be in the mount table.
Status HideAgent(pid_t pid) {
  return DoInside(pid, "mnt", "agent", [] {
    struct mount_attr attributes {};
    attributes.attr_clr = MOUNT_ATTR_RDONLY;
    if (::mount_setattr(AT_FDCWD, "/", 0, &attributes, sizeof(attributes)) != 0) return false;
    const bool hidden = ::umount2(policy::kAgentInside, MNT_DETACH) == 0 && ::unlink(policy::kAgentInside) == 0 &&
                        ::rmdir(policy::kAgentFolder) == 0;
    attributes = {};
    attributes.attr_set = MOUNT_ATTR_RDONLY;
    return ::mount_setattr(AT_FDCWD, "/", 0, &attributes, sizeof(attributes)) == 0 && hidden;
  });
}

// The agent has no capability and serves name look-ups, which resolvers send to port 53. /proc inside is read-only and
// may lack this file; the host's shows that of the namespace of the process that opens it.
Status AllowNamePort(pid_t pid) {
  return DoInside(pid, "net", "names", [] {
    const int file = ::open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC);
    return file >= 0 && ::write(file, "0", 1) == 1;
  });
}

std::vector<std::string> CapabilityNames(uint64_t set) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < 64; ++i) {
    if ((set >> i & 1U) == 0) continue;
    names.push_back(i < linux_sys::kCapabilityNames.size() ? linux_sys::kCapabilityNames[i]
                                                           : "CAP_" + std::to_string(i));
  }
  return names;
}

// Everything here was read from outside while the agent was ready, except for what the report says the agent told.
class Reporter {
 public:
  Reporter(const OciContainer& container, const policy::Profile& profile, const policy::Limits& limits,
           std::vector<std::string> given_up, bool seal_workspace)
      : container_(container),
        profile_(profile),
        limits_(limits),
        given_up_(std::move(given_up)),
        seal_workspace_(seal_workspace) {}

  Result<IsolationReport> Describe(const agent::Ready& ready) {
    // Before the walls are read, and before any command runs.
    const bool shm = std::find(profile_.writable_paths.begin(), profile_.writable_paths.end(), "/dev/shm") !=
                     profile_.writable_paths.end();
    CAISSON_TRY_VOID(SealDevices(container_.pid(), shm));
    CAISSON_TRY_VOID(HideAgent(container_.pid()));
    CAISSON_TRY(const UniqueFd root,
                linux_sys::Open("/proc/" + std::to_string(container_.pid()) + "/root", O_PATH | O_DIRECTORY));
    CAISSON_TRY(const sandbox::Walls walls, sandbox::ReadWalls(container_.pid(), root.get()));
    CAISSON_TRY_VOID(Check(walls, ready));
    if (seal_workspace_) CAISSON_TRY_VOID(SealWorkspace(container_.pid()));
    const policy::RuntimeDescription description = DescribeOci();
    IsolationReport report;
    report.runtime = description.name;
    report.namespaces = walls.namespaces;
    report.seccomp_profile = profile_.seccomp.filter;
    const sandbox::SeccompProgram* program = sandbox::FindSeccompProgram(profile_.seccomp.filter.c_str());
    report.seccomp_sha256 = program != nullptr ? program->sha256 : "";
    report.landlock_abi = ready.landlock_abi;
    report.cgroup_driver = container_.group().driver();
    report.host_uid = int64_t{walls.host_uid};
    report.no_new_privileges = walls.no_new_privileges;
    report.capabilities = CapabilityNames(walls.capabilities);
    report.degraded = ready.degraded;
    if (profile_.Has(policy::Namespace::kTime)) report.degraded.emplace_back("namespaces.time: the runtime makes none");
    report.degraded.insert(report.degraded.end(), given_up_.begin(), given_up_.end());
    report.cannot_observe = description.CannotObserve();
    report.walls = ListWalls(walls, ready);
    return report;
  }

 private:
  // SECURITY: what was asked for is not what a container program did until the kernel says so.
  Status Check(const sandbox::Walls& walls, const agent::Ready& ready) const {
    const auto own = [&](const char* name) {
      return std::find(walls.namespaces.begin(), walls.namespaces.end(), name) != walls.namespaces.end();
    };
    const auto missing = [](const std::string& wall) {
      return Error::System(EPROTO, "wall " + wall + ": the container runs and does not stand behind it");
    };
    for (const char* name : {"user", "pid", "mount", "network"}) {
      if (!own(name)) return missing(std::string("namespaces.") + name);
    }
    if (!walls.no_new_privileges) return missing("no_new_privileges");
    if (walls.capabilities != 0) return missing("capabilities");
    if (!walls.read_only_root) return missing("read_only_root");
    if (!ready.filter) return missing("seccomp");
    const witnessed::CgroupCounters& group = container_.group();
    // The kernel rounds down to pages.
    if (group.ReadMemoryLimit() < 0 || group.ReadMemoryLimit() > limits_.memory_bytes)
      return missing("limits.memory_bytes");
    if (group.ReadProcessLimit() != limits_.processes) return missing("limits.processes");
    if (!group.HasCpuLimit()) return missing("limits.cpu");
    return {};
  }

  std::vector<Wall> ListWalls(const sandbox::Walls& walls, const agent::Ready& ready) const {
    using enum WallState;
    std::vector<Wall> list;
    const auto add = [&](std::string name, bool stands, std::string evidence) {
      list.push_back({std::move(name), stands ? kEnforced : kAbsent, std::move(evidence)});
    };
    for (const char* name : policy::kNamespaceNames) {
      const bool own = std::find(walls.namespaces.begin(), walls.namespaces.end(), name) != walls.namespaces.end();
      add(std::string("namespaces.") + name, own, own ? "PID 1 has one of its own" : "PID 1 is in the runtime's");
    }
    add("id_range", true, "outside its user is one of a range of its own");
    add("no_new_privileges", walls.no_new_privileges, "NoNewPrivs in the status of PID 1");
    add("capabilities", walls.capabilities == 0, "all five sets in the status of PID 1");
    add("seccomp", ready.filter, "installed by the agent in each command's process; " + profile_.seccomp.filter);
    add("landlock", ready.landlock_abi > 0,
        ready.landlock_abi > 0 ? "told by the agent: ABI " + std::to_string(ready.landlock_abi)
                               : "not in this kernel or given up by the profile");
    add("read_only_root", walls.read_only_root, "mount flags of the root");
    add("rlimits", true, "set by the agent in each command's process");
    const std::string evidence = "cgroup " + container_.group().driver() + " has the limit";
    for (const char* limit : {"limits.memory_bytes", "limits.processes", "limits.cpu"}) add(limit, true, evidence);
    return list;
  }

  const OciContainer& container_;
  const policy::Profile profile_;
  const policy::Limits limits_;
  const std::vector<std::string> given_up_;
  const bool seal_workspace_;
};

class OciRuntime : public Runtime {
 public:
  explicit OciRuntime(std::string agent) : agent_(std::move(agent)) {}

  policy::RuntimeDescription Describe() const override { return DescribeOci(); }

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    if (::geteuid() != 0)
      return Error::Unsupported(
          "runtime oci: needs root, because only root's containers have limits that hold; use the runtime native");
    const std::string program = FindProgram({"runc", "crun"});
    if (program.empty()) return Error::Unsupported("runtime oci: neither runc nor crun; fix: apt-get install runc");
    CAISSON_TRY(const std::string agent, witnessed::FindAgent(agent_, "oci"));
    BundleInput input;
    for (const policy::PlannedFile& file : plan.workspace_files)
      input.workspace_bytes += static_cast<int64_t>(file.bytes.size()) + 4096;
    CAISSON_TRY(witnessed::LoweredPlan lowered, witnessed::Lower(plan, Describe()));
    CAISSON_TRY(std::unique_ptr<State> state, State::Make("oci", {program}));
    input.directory = state->directory();
    input.agent = agent;
    input.first_host_id = state->first_host_id();
    input.cgroup = "/" + state->id() + ".oci";
    CAISSON_TRY(const WrittenBundle bundle, WriteBundle(plan, input));
    auto container = std::make_unique<OciContainer>("oci", std::move(state));
    CAISSON_TRY_VOID(container->Create({}, bundle.mounts));
    CAISSON_TRY_VOID(AllowNamePort(container->pid()));
    const bool seal = !plan.workspace_mount && plan.workspace_access == policy::Access::kReadOnly;
    Reporter reporter(*container, plan.profile, plan.limits, lowered.given_up, seal);
    return witnessed::BeginRun(std::move(container), std::move(lowered),
                               [&](const agent::Ready& ready) { return reporter.Describe(ready); });
  }

 private:
  const std::string agent_;
};

}  // namespace

policy::RuntimeDescription DescribeOci() {
  using policy::Ability;
  policy::RuntimeDescription oci;
  oci.name = "oci";
  oci.strength = policy::Strength::kContainer;
  oci.abilities = {Ability::kObservesWrites, Ability::kObservesNetwork, Ability::kObservesSystemCalls};
  oci.limits.fill(policy::LimitSupport::kEnforced);
  oci.needed_walls = {"namespaces.user", "namespaces.pid",      "namespaces.mount", "namespaces.network",
                      "capabilities",    "seccomp.filter.none", "no_new_privileges"};
  return oci;
}

std::unique_ptr<Runtime> MakeOciRuntime(std::string agent) { return std::make_unique<OciRuntime>(std::move(agent)); }

}  // namespace caisson::runtime::oci
