#include "runtime/kubernetes/kubernetes.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/percent.h"
#include "policy/render.h"
#include "runtime/kubernetes/api.h"
#include "runtime/kubernetes/owner.h"
#include "runtime/kubernetes/pod_container.h"
#include "runtime/kubernetes/settings.h"
#include "runtime/witnessed/lower.h"
#include "runtime/witnessed/run.h"
#include "sandbox/seccomp_program.h"

namespace caisson::runtime::kubernetes {

namespace {

using nlohmann::json;

constexpr int64_t kSlackSeconds = 60;  // from the agent's last limit to the pod's deadline
constexpr int64_t kKeptSeconds = 60;
constexpr int64_t kSmallVolumeBytes = int64_t{1} << 20;

Result<std::string> NewName() {
  unsigned char bytes[10];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return Error::System(errno, "read random bytes");
  std::string name = "caisson-";
  for (const unsigned char byte : bytes) {
    for (const int half : {byte >> 4, byte & 15}) name += "0123456789abcdef"[half];
  }
  return name;
}

// Everything here is what the API server stores about the pod, except for what the report says the agent told.
class Reporter {
 public:
  Reporter(const PodContainer& container, const Settings& settings, const policy::Profile& profile,
           std::vector<std::string> given_up, const std::string& job)
      : container_(container), settings_(settings), profile_(profile), given_up_(std::move(given_up)) {
    wanted_ = json::parse(job)["spec"]["template"]["spec"];
  }

  Result<IsolationReport> Describe(const agent::Ready& ready) {
    CAISSON_TRY_VOID(CheckPod());
    CAISSON_TRY_VOID(CheckAgent(ready));
    const policy::RuntimeDescription description = DescribeKubernetes();
    IsolationReport report;
    report.runtime = description.name;
    report.namespaces = Namespaces();
    report.seccomp_profile = profile_.seccomp.filter;
    const sandbox::SeccompProgram* program = sandbox::FindSeccompProgram(profile_.seccomp.filter.c_str());
    report.seccomp_sha256 = program != nullptr ? program->sha256 : "";
    report.landlock_abi = ready.landlock_abi;
    report.cgroup_driver = "kubelet";
    report.host_uid = -1;
    report.no_new_privileges = ready.no_new_privileges;
    report.degraded = ready.degraded;
    if (settings_.host_users) report.degraded.emplace_back("namespaces.user: given up by the setting host_users");
    if (profile_.Has(policy::Namespace::kTime)) report.degraded.emplace_back("namespaces.time: the runtime makes none");
    if (!ready.interfaces.empty())
      report.degraded.push_back("namespaces.network: the pod has the interface " + ready.interfaces.front() +
                                "; the setting pod_network vouches for a NetworkPolicy that lets nothing through");
    report.degraded.insert(report.degraded.end(), given_up_.begin(), given_up_.end());
    report.cannot_observe = description.CannotObserve();
    report.walls = ListWalls(ready);
    return report;
  }

 private:
  static Error Missing(const std::string& wall, const std::string& why) {
    return Error::Unsupported("wall " + wall + ": " + why);
  }

  // SECURITY: what was asked for is not what a cluster made until its API server says so: admission plugins may change
  // pods, and an older server drops fields that it does not know.
  Status CheckPod() const {
    const json& actual = container_.pod().spec;
    if (!settings_.host_users && (!actual.contains("hostUsers") || actual["hostUsers"] != false))
      return Missing("namespaces.user",
                     "this cluster has no user namespaces (Kubernetes 1.33 or newer has); fix: upgrade, or accept the "
                     "loss with host_users: true in the settings");
    if (const std::string difference = FindDifference(actual, wanted_); !difference.empty())
      return Missing("pod", "the cluster changed the pod: spec." + difference);
    for (const char* added : {"initContainers", "ephemeralContainers"}) {
      if (actual.contains(added) && !actual[added].empty())
        return Missing("pod", std::string("the cluster added ") + added +
                                  "; exclude the namespace from the injection of sidecars");
    }
    return {};
  }

  Status CheckAgent(const agent::Ready& ready) const {
    if (!ready.no_new_privileges) return Missing("no_new_privileges", "the agent runs without it");
    if (ready.capabilities != 0) return Missing("capabilities", "the agent has some");
    if (!ready.filter) return Missing("seccomp", "the agent has no filter");
    if (!ready.interfaces.empty() && settings_.pod_network == PodNetwork::kClosed)
      return Missing("namespaces.network",
                     "the pod has the interface " + ready.interfaces.front() +
                         ", so a workload could send packets; fix: nodes whose network plugin gives pods none, or a "
                         "default-deny NetworkPolicy that is enforced (deploy/kubernetes/network-policy.yaml) and "
                         "pod_network: policy in the settings");
    return {};
  }

  std::vector<std::string> Namespaces() const {
    std::vector<std::string> names = {"pid", "mount", "network", "ipc", "uts"};
    if (!settings_.host_users) names.insert(names.begin(), "user");
    return names;
  }

  std::vector<Wall> ListWalls(const agent::Ready& ready) const {
    using enum WallState;
    std::vector<Wall> list;
    const auto add = [&](std::string name, bool stands, std::string evidence) {
      list.push_back({std::move(name), stands ? kEnforced : kAbsent, std::move(evidence)});
    };
    const std::vector<std::string> own = Namespaces();
    for (const char* name : policy::kNamespaceNames) {
      const bool has = std::find(own.begin(), own.end(), name) != own.end();
      add(std::string("namespaces.") + name, has,
          has ? "the pod as the API server stores it" : "the pod does not ask for one");
    }
    if (!ready.interfaces.empty()) {
      const auto network =
          std::find_if(list.begin(), list.end(), [](const Wall& wall) { return wall.name == "namespaces.network"; });
      network->state = kWatched;
      network->evidence = "the pod has an interface; the operator vouches for a NetworkPolicy";
    }
    add("no_new_privileges", true, "told by the agent; allowPrivilegeEscalation: false");
    add("capabilities", true, "told by the agent; all dropped");
    add("seccomp", true, "installed by the agent in each command's process; " + profile_.seccomp.filter);
    add("landlock", ready.landlock_abi > 0,
        ready.landlock_abi > 0 ? "told by the agent: ABI " + std::to_string(ready.landlock_abi)
                               : "not in the node's kernel or given up by the profile");
    add("read_only_root", true, "readOnlyRootFilesystem");
    add("rlimits", true, "set by the agent in each command's process");
    for (const char* limit : {"limits.memory_bytes", "limits.cpu"})
      add(limit, true, "the pod's resources as the API server stores them");
    for (const char* limit : {"limits.processes", "limits.scratch_inodes"})
      list.push_back({limit, kWatched, "measured by the agent"});
    return list;
  }

  const PodContainer& container_;
  const Settings settings_;
  const policy::Profile profile_;
  const std::vector<std::string> given_up_;
  json wanted_;
};

class KubernetesRuntime : public Runtime {
 public:
  policy::RuntimeDescription Describe() const override { return DescribeKubernetes(); }

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    CAISSON_TRY(const Settings settings, FindSettings());
    CAISSON_TRY(Access access, FindAccess(settings));
    if (plan.workspace_mount || !plan.mounts.empty())
      return Error::Unsupported(
          "runtime kubernetes: a pod cannot show a directory of this machine; submit files (caisson verify copies "
          "them), or use the runtime native");
    CAISSON_TRY(std::shared_ptr<const Api> api, Api::Make(std::move(access)));
    CAISSON_TRY_VOID(RemoveOrphans(*api));
    CAISSON_TRY(const policy::PodRun run, DescribePod(plan, settings));
    CAISSON_TRY(witnessed::LoweredPlan lowered, witnessed::Lower(plan, Describe()));
    lowered.agent.limit_processes_by_rlimit = lowered.agent.in_pod = true;
    policy::Profile limited = plan.profile;
    limited.limits = plan.limits;
    limited.strength = policy::Strength::kContainer;  // the setting names the class of a stronger one
    const std::string job = policy::render::KubernetesJob(limited, run);
    CAISSON_TRY(std::unique_ptr<PodContainer> container,
                PodContainer::Start(std::move(api), run.name, job, settings.start_seconds));
    Reporter reporter(*container, settings, plan.profile, lowered.given_up, job);
    return witnessed::BeginRun(std::move(container), std::move(lowered),
                               [&](const agent::Ready& ready) { return reporter.Describe(ready); });
  }

 private:
  static Result<policy::PodRun> DescribePod(const policy::RunPlan& plan, const Settings& settings) {
    policy::PodRun run;
    CAISSON_TRY(run.name, NewName());
    run.image = settings.image;
    run.pull_policy = settings.pull_policy;
    run.runtime_class = settings.runtime_class;
    run.seccomp_profile = settings.seccomp_profile;
    run.host_users = settings.host_users;
    run.node_selector = settings.node_selector;
    run.labels = {{kMachineLabel, ThisMachine()}, {kOwnerLabel, ThisOwner()}};
    run.workspace_bytes = kSmallVolumeBytes;
    for (const policy::PlannedFile& file : plan.workspace_files)
      run.workspace_bytes += static_cast<int64_t>(file.bytes.size()) + 4096;
    if (plan.workspace_access != policy::Access::kReadOnly) run.workspace_bytes += plan.limits.scratch_bytes;
    run.deadline_seconds = std::max(plan.limits.budget_ms, plan.limits.command_timeout_ms) / 1000 + kSlackSeconds;
    run.kept_seconds = kKeptSeconds;
    return run;
  }

  // Deletes the Jobs of processes of this machine that were killed. Once: a process that dies later is found by
  // another.
  Status RemoveOrphans(const Api& api) {
    const std::lock_guard lock(mutex_);
    if (looked_for_orphans_) return {};
    const std::string selector =
        std::string("app.kubernetes.io/managed-by=caisson,") + kMachineLabel + "=" + ThisMachine();
    CAISSON_TRY(const Reply reply,
                api.Request("GET", api.JobsPath() + "?limit=500&labelSelector=" + PercentEncode(selector)));
    looked_for_orphans_ = true;
    const json list = json::parse(reply.body, nullptr, false);
    if (!list.is_object() || !list.contains("items") || !list["items"].is_array()) return {};
    for (const json& job : list["items"]) {
      const std::string name = TextAt(job, {"metadata", "name"});
      const std::string owner = TextAt(job, {"metadata", "labels", kOwnerLabel});
      if (name.empty() || MayBeAlive(owner)) continue;
      (void)api.Request("DELETE", api.JobsPath() + "/" + name + "?propagationPolicy=Background");
    }
    return {};
  }

  std::mutex mutex_;
  bool looked_for_orphans_ = false;
};

}  // namespace

policy::RuntimeDescription DescribeKubernetes() {
  using policy::Ability;
  using policy::LimitSupport;
  policy::RuntimeDescription description;
  description.name = "kubernetes";
  description.strength = policy::Strength::kContainer;
  description.abilities = {Ability::kObservesWrites, Ability::kObservesNetwork, Ability::kObservesSystemCalls};
  description.limits.fill(LimitSupport::kEnforced);
  // A pod has no such limits of its own; the agent measures.
  for (size_t i = 0; i < policy::kLimitFields.size(); ++i) {
    const std::string_view name = policy::kLimitFields[i].name;
    if (name == "processes" || name == "scratch_inodes" || name == "cpu_time_ms")
      description.limits[i] = LimitSupport::kWatched;
  }
  description.needed_walls = {"namespaces.user", "namespaces.pid",      "namespaces.mount", "namespaces.network",
                              "capabilities",    "seccomp.filter.none", "no_new_privileges"};
  return description;
}

std::unique_ptr<Runtime> MakeKubernetesRuntime() { return std::make_unique<KubernetesRuntime>(); }

}  // namespace caisson::runtime::kubernetes
