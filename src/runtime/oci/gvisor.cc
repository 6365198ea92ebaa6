#include "runtime/oci/gvisor.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "linux/files.h"
#include "linux/syscalls.h"
#include "runtime/oci/bundle.h"
#include "runtime/oci/container.h"
#include "runtime/oci/program.h"
#include "runtime/oci/state.h"
#include "runtime/oci/trace_judge.h"
#include "runtime/oci/trace_sink.h"
#include "runtime/witnessed/agent_program.h"
#include "runtime/witnessed/lower.h"
#include "runtime/witnessed/run.h"
#include "sandbox/inside_paths.h"
#include "sandbox/setup.h"
#include "sandbox/walls.h"

namespace caisson::runtime::oci {

namespace {

// gVisor's kernel and its file server share the container's cgroup: their memory, and for each process of the workload
// the threads that carry it. Within this room the limits of the plan still hold, by other means.
constexpr int64_t kOwnMemoryBytes = int64_t{96} << 20;
constexpr int64_t kOwnThreads = 512;
constexpr int64_t kThreadsPerProcess = 4;

class GvisorContainer : public OciContainer {
 public:
  GvisorContainer(std::unique_ptr<State> state, std::unique_ptr<TraceSink> sink)
      : OciContainer("gvisor", std::move(state)), sink_(std::move(sink)) {}
  ~GvisorContainer() override { GvisorContainer::Kill(); }

  // Of the group, but for processes: the group counts gVisor's threads. The kernel inside enforces that limit, and its
  // refusals are counted here, outside.
  Result<std::optional<sandbox::GroupCounters>> ReadCounters() override {
    CAISSON_TRY(std::optional<sandbox::GroupCounters> counters, OciContainer::ReadCounters());
    CAISSON_TRY(const int64_t refused, sink_->CountRefusedForks());
    counters->refused_forks += refused;
    counters->peak_processes.reset();
    return counters;
  }
  int attention() const override { return sink_->attention(); }

  // SECURITY: while the sandbox runs, it is observed.
  Result<std::vector<Violation>> TakeViolations() {
    CAISSON_TRY(std::vector<Violation> seen, sink_->Take());
    if (seen.empty() && !sink_->is_connected() && is_running())
      return Error::System(EPROTO, "wall observation: gVisor's trace session has ended before the sandbox");
    return seen;
  }
  TraceSink& sink() { return *sink_; }

 private:
  std::unique_ptr<TraceSink> sink_;
};

// Whether a path of a writable place has a symbolic link in it, or cannot be looked up any more.
bool LeadsThroughLink(int scratch, const std::vector<std::string>& places, const std::string& path) {
  for (const std::string& place : places) {
    if (!sandbox::IsBelow(path, place)) continue;
    std::string inside = place.substr(place.rfind('/') + 1) + path.substr(place.size());
    struct open_how how {};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    const UniqueFd found(linux_sys::OpenAt2(scratch, inside.c_str(), how));
    struct stat info {};
    if (found) return ::fstat(found.get(), &info) != 0 || S_ISLNK(info.st_mode);
    if (errno != ENOENT) return true;
    // The file is not there, so its directory must be.
    inside.resize(inside.rfind('/') == std::string::npos ? 0 : inside.rfind('/'));
    if (inside.empty()) return true;
    const UniqueFd parent(linux_sys::OpenAt2(scratch, inside.c_str(), how));
    return !parent;
  }
  return false;  // a mount of the host, where the path is all that is known
}

class Reporter {
 public:
  Reporter(GvisorContainer& container, const policy::Profile& profile, const BundleInput& input,
           std::vector<std::string> given_up)
      : container_(container), profile_(profile), given_up_(std::move(given_up)) {
    memory_bytes_ = input.group_memory_bytes;
    processes_ = input.group_processes;
  }

  Result<IsolationReport> Describe(const agent::Ready& ready) {
    CAISSON_TRY(const UniqueFd root,
                linux_sys::Open("/proc/" + std::to_string(container_.pid()) + "/root", O_PATH | O_DIRECTORY));
    CAISSON_TRY(const sandbox::Walls walls, sandbox::ReadWalls(container_.pid(), root.get()));
    CAISSON_TRY_VOID(Check(walls, ready));
    const policy::RuntimeDescription description = DescribeGvisor();
    IsolationReport report;
    report.runtime = description.name;
    report.namespaces = walls.namespaces;
    report.seccomp_profile = profile_.seccomp.filter;
    const sandbox::SeccompProgram* program = sandbox::FindSeccompProgram(profile_.seccomp.filter.c_str());
    report.seccomp_sha256 = program != nullptr ? program->sha256 : "";
    report.cgroup_driver = container_.group().driver();
    report.host_uid = int64_t{walls.host_uid};
    report.no_new_privileges = ready.no_new_privileges;
    report.degraded = ready.degraded;
    report.degraded.insert(report.degraded.end(), given_up_.begin(), given_up_.end());
    report.degraded.emplace_back(
        "observation: a change that gVisor's kernel refuses for another reason than its place is not recorded");
    report.cannot_observe = description.CannotObserve();
    report.walls = ListWalls(walls, ready);
    return report;
  }

 private:
  static bool Own(const sandbox::Walls& walls, const char* name) {
    return std::find(walls.namespaces.begin(), walls.namespaces.end(), name) != walls.namespaces.end();
  }

  // SECURITY: what was asked for is not what runsc did until the kernel says so.
  Status Check(const sandbox::Walls& walls, const agent::Ready& ready) {
    const auto missing = [](const std::string& wall) {
      return Error::System(EPROTO, "wall " + wall + ": gVisor runs and does not stand behind it");
    };
    for (const char* name : {"user", "mount", "network"}) {
      if (!Own(walls, name)) return missing(std::string("namespaces.") + name);
    }
    if (!walls.filter) return missing("seccomp");
    if (!walls.no_new_privileges || !ready.no_new_privileges) return missing("no_new_privileges");
    if (walls.host_uid == 0) return missing("user");
    if (!container_.sink().is_connected()) return missing("observation");
    const witnessed::CgroupCounters& group = container_.group();
    // The kernel rounds down to pages.
    if (group.ReadMemoryLimit() < 0 || group.ReadMemoryLimit() > memory_bytes_) return missing("limits.memory_bytes");
    if (group.ReadProcessLimit() != processes_) return missing("limits.processes");
    if (!group.HasCpuLimit()) return missing("limits.cpu");
    return {};
  }

  std::vector<Wall> ListWalls(const sandbox::Walls& walls, const agent::Ready&) const {
    using enum WallState;
    std::vector<Wall> list;
    for (const char* name : policy::kNamespaceNames) {
      const bool own = Own(walls, name);
      list.push_back({std::string("namespaces.") + name, own ? kEnforced : kNotApplicable,
                      own ? "gVisor's kernel has one of its own on the host"
                          : "the workload sees those of gVisor's kernel, not of the host's"});
    }
    list.push_back({"kernel", kEnforced, "system calls of the workload end in gVisor's kernel, platform ptrace"});
    list.push_back({"id_range", kAbsent, "outside, gVisor runs as nobody, as it does for every other sandbox"});
    list.push_back(
        {"no_new_privileges", kEnforced, "NoNewPrivs in the status of gVisor's kernel; inside: told by the agent"});
    list.push_back({"capabilities", kEnforced, "dropped by the agent in each command's process"});
    list.push_back({"seccomp", kEnforced,
                    "gVisor's own filter on its kernel; the workload's calls are watched, " + profile_.seccomp.filter});
    list.push_back(
        {"landlock", kNotApplicable, "gVisor's kernel has none; its file server opens what the bundle lists"});
    list.push_back({"read_only_root", kEnforced, "the bundle shows it read-only; gVisor's kernel keeps to it"});
    list.push_back({"rlimits", kEnforced, "set by the agent in each command's process"});
    const std::string group = "cgroup " + container_.group().driver() + " has the limit";
    list.push_back({"limits.memory_bytes", kEnforced,
                    group + " and " + std::to_string(kOwnMemoryBytes >> 20) + " MiB for gVisor itself"});
    list.push_back({"limits.processes", kEnforced, "RLIMIT_NPROC in gVisor's kernel; refusals are counted outside"});
    list.push_back({"limits.cpu", kEnforced, group});
    return list;
  }

  GvisorContainer& container_;
  const policy::Profile profile_;
  const std::vector<std::string> given_up_;
  int64_t memory_bytes_ = 0, processes_ = 0;
};

class GvisorRuntime : public Runtime {
 public:
  explicit GvisorRuntime(std::string agent) : agent_(std::move(agent)) {}

  policy::RuntimeDescription Describe() const override { return DescribeGvisor(); }

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    if (::geteuid() != 0)
      return Error::Unsupported(
          "runtime gvisor: needs root, because only root's sandboxes have limits that hold; use the runtime native");
    const std::string program = FindProgram({"runsc"});
    if (program.empty()) return Error::Unsupported("runtime gvisor: runsc is missing; fix: apt-get install runsc");
    CAISSON_TRY(const std::string agent, witnessed::FindAgent(agent_, "gvisor"));
    CAISSON_TRY(witnessed::LoweredPlan lowered, witnessed::Lower(plan, Describe()));
    CAISSON_TRY(std::unique_ptr<State> state, State::Make("gvisor", {program, "--platform=ptrace", "--network=none"}));
    BundleInput input;
    input.gvisor = true;
    for (const policy::PlannedFile& file : lowered.files)
      input.workspace_bytes += static_cast<int64_t>(file.bytes.size()) + 4096;
    input.workspace_files = std::exchange(lowered.files, {});
    input.directory = state->directory();
    input.agent = agent;
    input.first_host_id = state->first_host_id();
    input.cgroup = "/" + state->id() + ".oci";
    input.group_memory_bytes = plan.limits.memory_bytes + kOwnMemoryBytes;
    input.group_processes = kOwnThreads + kThreadsPerProcess * plan.limits.processes;
    CAISSON_TRY(WrittenBundle bundle, WriteBundle(plan, input));
    std::vector<std::string> places = AdaptPlan(lowered.agent);
    CAISSON_TRY(std::unique_ptr<TraceSink> sink,
                TraceSink::Listen(state->directory() + "/trace",
                                  MakeJudge(lowered.agent, std::move(bundle.scratch), std::move(places))));
    const std::string configuration = state->directory() + "/trace.json";
    CAISSON_TRY(const UniqueFd file, linux_sys::OpenOutput(configuration, O_WRONLY | O_CREAT | O_EXCL));
    CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), sink->Configuration()));
    auto container = std::make_unique<GvisorContainer>(std::move(state), std::move(sink));
    CAISSON_TRY_VOID(container->Create({"--pod-init-config=" + configuration}, bundle.mounts));
    GvisorContainer* const observed = container.get();
    Reporter reporter(*container, plan.profile, input, lowered.given_up);
    return witnessed::BeginRun(
        std::move(container), std::move(lowered), [&](const agent::Ready& ready) { return reporter.Describe(ready); },
        [observed] { return observed->TakeViolations(); });
  }

 private:
  // gVisor's kernel has no listener for filters and no Landlock, does not protect PID 1 from processes of its own user,
  // and shows one file system of the host as several. Returns the places that are on that file system.
  static std::vector<std::string> AdaptPlan(agent::Plan& plan) {
    std::vector<std::string> places = {"/scratch"};
    if (plan.spec.writable_tmp) places.emplace_back("/tmp");
    if (plan.spec.writable_shm) places.emplace_back("/dev/shm");
    plan.observe = false;
    plan.spec.landlock = false;
    plan.limit_processes_by_rlimit = true;
    plan.commands_become_user = true;
    plan.one_scratch = true;
    if (plan.workspace_is_mounted) return places;
    plan.workspace_is_mounted = true;
    const bool writable = plan.spec.workspace_files_writable;
    if (writable) places.emplace_back("/workspace");
    plan.mounts.push_back({"/workspace", writable ? sandbox::Access::kReadWrite : sandbox::Access::kReadOnly});
    return places;
  }

  static TraceJudge MakeJudge(const agent::Plan& plan, UniqueFd scratch, std::vector<std::string> places) {
    TraceJudge::Options options;
    static_cast<sandbox::WriteRules&>(options) = agent::WriteRulesOf(plan);
    options.scratch_bytes = plan.spec.limits.scratch_bytes;
    options.probes = plan.spec.probes;
    options.leads_through_link = [files = std::make_shared<UniqueFd>(std::move(scratch)), places = std::move(places)](
                                     const std::string& path) { return LeadsThroughLink(files->get(), places, path); };
    sandbox::Spec spec;
    spec.seccomp = plan.spec.seccomp;
    spec.allowed_calls = plan.spec.allowed_calls;
    spec.denied_calls = plan.spec.denied_calls;
    std::unique_ptr<sandbox::ExtendedProgram> extended = sandbox::ChooseFilter(spec, false);
    return TraceJudge(*plan.spec.seccomp, std::move(extended), std::move(options));
  }

  const std::string agent_;
};

}  // namespace

policy::RuntimeDescription DescribeGvisor() {
  using policy::Ability;
  policy::RuntimeDescription gvisor;
  gvisor.name = "gvisor";
  gvisor.strength = policy::Strength::kGvisor;
  gvisor.abilities = {Ability::kObservesWrites, Ability::kObservesNetwork, Ability::kObservesSystemCalls};
  gvisor.limits.fill(policy::LimitSupport::kEnforced);
  gvisor.needed_walls = {"namespaces.user", "namespaces.pid",      "namespaces.mount", "namespaces.network",
                         "capabilities",    "seccomp.filter.none", "no_new_privileges"};
  return gvisor;
}

std::unique_ptr<Runtime> MakeGvisorRuntime(std::string agent) {
  return std::make_unique<GvisorRuntime>(std::move(agent));
}

}  // namespace caisson::runtime::oci
