#include <algorithm>
#include <utility>

#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

using nlohmann::ordered_json;

namespace {

// By Strength: the names that the runtimes' own instructions give their classes.
constexpr const char* kRuntimeClasses[] = {nullptr, nullptr, "gvisor", "kata"};
constexpr int64_t kSecondsKeptAfterwards = 300;
constexpr int64_t kJobSlackSeconds = 60;
constexpr int64_t kLogBytes = int64_t{256} << 20;

// Scalars in JSON spelling are valid YAML.
void WriteYaml(const ordered_json& value, size_t indent, std::string& out) {
  bool first = true;
  for (const auto& [key, member] : value.items()) {
    // The first line of a list's item follows its dash.
    if (!first || out.empty() || out.back() == '\n') out.append(indent, ' ');
    first = false;
    out += value.is_array() ? "-" : key + ":";
    if (member.empty() || !member.is_structured()) {
      out += " " + member.dump() + "\n";
    } else if (value.is_array()) {
      out += " ";
      WriteYaml(member, indent + 2, out);
    } else {
      out += "\n";
      WriteYaml(member, indent + 2, out);
    }
  }
}

// A volume's name for a path: "/dev/shm" is "shm".
std::string VolumeName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

ordered_json Metadata(const std::string& name, const PodRun* run) {
  ordered_json labels = {{"app.kubernetes.io/name", run != nullptr ? "caisson" : name},
                         {"app.kubernetes.io/managed-by", "caisson"}};
  if (run != nullptr) {
    for (const auto& [key, value] : run->labels) labels[key] = value;
  }
  return {{"name", name}, {"labels", std::move(labels)}};
}

ordered_json Resources(const Limits& limits, const PodRun* run) {
  ordered_json most = {{"cpu", std::to_string(limits.cpu_millis) + "m"},
                       {"memory", std::to_string(limits.memory_bytes)},
                       // Only the log can grow on the node's disk.
                       {"ephemeral-storage", std::to_string(limits.output_bytes)}};
  ordered_json least = most;
  if (run != nullptr) {
    // The node's log of the stream has everything that the agent sends, with a time stamp in front of each line.
    most["ephemeral-storage"] = std::to_string(kLogBytes + 64 * limits.output_bytes);
    least["ephemeral-storage"] = "0";
    // Runs seldom use all CPU they may: a node takes ten times as many. Memory is not shared out twice.
    least["cpu"] = std::to_string(std::max<int64_t>(10, limits.cpu_millis / 10)) + "m";
  }
  return {{"limits", std::move(most)}, {"requests", std::move(least)}};
}

ordered_json Container(const Profile& profile, const PodRun* run) {
  ordered_json environment = ordered_json::array();
  for (const auto& [name, value] : profile.environment) {
    if (run == nullptr) environment.push_back({{"name", name}, {"value", value}});
  }
  ordered_json mounts = ordered_json::array();
  for (const WritableArea& area : WritableAreas(profile))
    mounts.push_back({{"name", VolumeName(area.path)}, {"mountPath", area.path}});
  // The agent writes the workspace of a run; Landlock keeps a command from changing one that is read-only.
  mounts.push_back({{"name", "workspace"},
                    {"mountPath", "/workspace"},
                    {"readOnly", run == nullptr && profile.workspace != Access::kReadWrite}});
  ordered_json container = {{"name", "workload"},
                            {"image", run != nullptr ? run->image : kPlaceholderImage},
                            {"imagePullPolicy", run != nullptr ? run->pull_policy : "IfNotPresent"},
                            {"command", ordered_json::array({run != nullptr ? kAgentInside : kPlaceholderProgram})},
                            {"args", run != nullptr ? ordered_json::array({kAwaitGreeting}) : ordered_json::array()},
                            {"workingDir", run != nullptr ? "/" : "/workspace"},
                            {"env", std::move(environment)},
                            {"stdin", run != nullptr},
                            {"tty", false},
                            {"terminationMessagePolicy", "File"},
                            {"resources", Resources(profile.limits, run)},
                            {"securityContext",
                             {{"allowPrivilegeEscalation", false},
                              {"privileged", false},
                              {"readOnlyRootFilesystem", true},
                              {"runAsNonRoot", true},
                              {"runAsUser", kInsideId},
                              {"runAsGroup", kInsideId},
                              {"procMount", "Default"},
                              {"capabilities", {{"drop", ordered_json::array({"ALL"})}}}}},
                            {"volumeMounts", std::move(mounts)}};
  // The agent ends, and everything inside with it, when the stream that was attached first ends.
  if (run != nullptr) container["stdinOnce"] = true;
  return container;
}

ordered_json MemoryVolume(const std::string& name, int64_t bytes) {
  return {{"name", name}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", std::to_string(bytes)}}}};
}

ordered_json Volumes(const Profile& profile, const PodRun* run) {
  ordered_json volumes = ordered_json::array();
  for (const WritableArea& area : WritableAreas(profile))
    volumes.push_back(MemoryVolume(VolumeName(area.path), area.bytes));
  if (run != nullptr) {
    volumes.push_back(MemoryVolume("workspace", run->workspace_bytes));
  } else {
    volumes.push_back({{"name", "workspace"},
                       {"persistentVolumeClaim",
                        {{"claimName", kWorkspaceName}, {"readOnly", profile.workspace != Access::kReadWrite}}}});
  }
  return volumes;
}

ordered_json SecurityContext(const Profile& profile, const PodRun* run) {
  // SECURITY: an outer filter that refuses what the agent observes would hide the attempt, so a run has the node's
  // default, which is looser than the profile's own filter; the agent installs that one.
  ordered_json filter = {{"type", "Localhost"}, {"localhostProfile", "caisson/" + PlainName(profile, '-') + ".json"}};
  if (run != nullptr) filter["localhostProfile"] = run->seccomp_profile;
  if (run != nullptr && run->seccomp_profile.empty()) filter = {{"type", "RuntimeDefault"}};
  ordered_json context = {{"runAsNonRoot", true},
                          {"runAsUser", kInsideId},
                          {"runAsGroup", kInsideId},
                          {"seccompProfile", std::move(filter)}};
  // The agent serves name look-ups at port 53 without a capability.
  if (run != nullptr)
    context["sysctls"] = ordered_json::array({{{"name", "net.ipv4.ip_unprivileged_port_start"}, {"value", "0"}}});
  return context;
}

ordered_json Pod(const Profile& profile, const PodRun* run) {
  ordered_json pod = {
      {"restartPolicy", "Never"},
      {"automountServiceAccountToken", false},
      {"enableServiceLinks", false},
      {"hostNetwork", false},
      {"hostPID", false},
      {"hostIPC", false},
      {"hostUsers", run != nullptr && run->host_users},
      {"shareProcessNamespace", false},
      {"hostname", kHostname},
      // No server answers at this address: workloads must not learn the names of the cluster.
      {"dnsPolicy", "None"},
      {"dnsConfig",
       {{"nameservers", ordered_json::array({"127.0.0.53"})},
        {"options",
         ordered_json::array({{{"name", "timeout"}, {"value", "1"}}, {{"name", "attempts"}, {"value", "1"}}})}}},
      {"terminationGracePeriodSeconds", 0},
      {"securityContext", SecurityContext(profile, run)},
      {"containers", ordered_json::array({Container(profile, run)})},
      {"volumes", Volumes(profile, run)},
  };
  if (const char* runtime = kRuntimeClasses[static_cast<size_t>(profile.strength)]; runtime != nullptr)
    pod["runtimeClassName"] = runtime;
  if (run == nullptr) return pod;
  if (!run->runtime_class.empty()) pod["runtimeClassName"] = run->runtime_class;
  pod["activeDeadlineSeconds"] = run->deadline_seconds;
  for (const auto& [key, value] : run->node_selector) pod["nodeSelector"][key] = value;
  return pod;
}

ordered_json Job(const std::string& name, const Profile& profile, const PodRun* run) {
  const ordered_json metadata = Metadata(name, run);
  // The job controller deletes the pod of a Job that is late, and its status with it: the pod's own deadline comes
  // first.
  const int64_t deadline =
      run != nullptr ? run->deadline_seconds + kJobSlackSeconds : std::max<int64_t>(1, profile.limits.budget_ms / 1000);
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", metadata},
          {"spec",
           {{"parallelism", 1},
            {"completions", 1},
            {"backoffLimit", 0},
            {"activeDeadlineSeconds", deadline},
            {"ttlSecondsAfterFinished", run != nullptr ? run->kept_seconds : kSecondsKeptAfterwards},
            {"template", {{"metadata", {{"labels", metadata["labels"]}}}, {"spec", Pod(profile, run)}}}}}};
}

}  // namespace

Result<std::string> Kubernetes(const Profile& profile) {
  // Each node needs the filter as a file; if the filter cannot be rendered, neither can the pods.
  CAISSON_TRY_VOID(SeccompDocument(profile));
  const std::string name = "caisson-" + PlainName(profile, '-');
  const ordered_json metadata = Metadata(name, nullptr);
  const ordered_json policy = {{"apiVersion", "networking.k8s.io/v1"},
                               {"kind", "NetworkPolicy"},
                               {"metadata", metadata},
                               {"spec",
                                {{"podSelector", {{"matchLabels", metadata["labels"]}}},
                                 {"policyTypes", ordered_json::array({"Ingress", "Egress"})},
                                 {"ingress", ordered_json::array()},
                                 {"egress", ordered_json::array()}}}};
  const ordered_json job = Job(name, profile, nullptr);
  // The policy comes first: no pod may start before the policy exists.
  std::string text;
  WriteYaml(policy, 0, text);
  text += "---\n";
  WriteYaml(job, 0, text);
  return text;
}

std::string KubernetesJob(const Profile& profile, const PodRun& run) { return Job(run.name, profile, &run).dump(); }

}  // namespace caisson::policy::render
