#include <algorithm>
#include <utility>

#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

using nlohmann::ordered_json;

namespace {

// By Strength: the names that the runtimes' own instructions give their classes.
constexpr const char* kRuntimeClasses[] = {nullptr, nullptr, "gvisor", "kata"};
constexpr int kSecondsKeptAfterwards = 300;

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

ordered_json Metadata(const std::string& name) {
  return {{"name", name}, {"labels", {{"app.kubernetes.io/name", name}, {"app.kubernetes.io/managed-by", "caisson"}}}};
}

ordered_json Container(const Profile& profile) {
  ordered_json environment = ordered_json::array();
  for (const auto& [name, value] : profile.environment) environment.push_back({{"name", name}, {"value", value}});
  ordered_json mounts = ordered_json::array();
  for (const WritableArea& area : WritableAreas(profile))
    mounts.push_back({{"name", VolumeName(area.path)}, {"mountPath", area.path}});
  mounts.push_back(
      {{"name", "workspace"}, {"mountPath", "/workspace"}, {"readOnly", profile.workspace != Access::kReadWrite}});
  const Limits& limits = profile.limits;
  ordered_json resources = {{"cpu", std::to_string(limits.cpu_millis) + "m"},
                            {"memory", std::to_string(limits.memory_bytes)},
                            // Only the log can grow on the node's disk.
                            {"ephemeral-storage", std::to_string(limits.output_bytes)}};
  return {{"name", "workload"},
          {"image", kPlaceholderImage},
          {"imagePullPolicy", "IfNotPresent"},
          {"command", ordered_json::array({kPlaceholderProgram})},
          {"args", ordered_json::array()},
          {"workingDir", "/workspace"},
          {"env", std::move(environment)},
          {"stdin", false},
          {"tty", false},
          {"terminationMessagePolicy", "File"},
          {"resources", {{"limits", resources}, {"requests", resources}}},
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
}

ordered_json Pod(const Profile& profile) {
  ordered_json volumes = ordered_json::array();
  for (const WritableArea& area : WritableAreas(profile)) {
    volumes.push_back({{"name", VolumeName(area.path)},
                       {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", std::to_string(area.bytes)}}}});
  }
  volumes.push_back({{"name", "workspace"},
                     {"persistentVolumeClaim",
                      {{"claimName", kWorkspaceName}, {"readOnly", profile.workspace != Access::kReadWrite}}}});
  ordered_json pod = {
      {"restartPolicy", "Never"},
      {"automountServiceAccountToken", false},
      {"enableServiceLinks", false},
      {"hostNetwork", false},
      {"hostPID", false},
      {"hostIPC", false},
      {"hostUsers", false},
      {"shareProcessNamespace", false},
      {"hostname", kHostname},
      // No server answers at this address: workloads must not learn the names of the cluster.
      {"dnsPolicy", "None"},
      {"dnsConfig",
       {{"nameservers", ordered_json::array({"127.0.0.53"})},
        {"options",
         ordered_json::array({{{"name", "timeout"}, {"value", "1"}}, {{"name", "attempts"}, {"value", "1"}}})}}},
      {"terminationGracePeriodSeconds", 0},
      {"securityContext",
       {{"runAsNonRoot", true},
        {"runAsUser", kInsideId},
        {"runAsGroup", kInsideId},
        {"seccompProfile",
         {{"type", "Localhost"}, {"localhostProfile", "caisson/" + PlainName(profile, '-') + ".json"}}}}},
      {"containers", ordered_json::array({Container(profile)})},
      {"volumes", std::move(volumes)},
  };
  if (const char* runtime = kRuntimeClasses[static_cast<size_t>(profile.strength)]; runtime != nullptr)
    pod["runtimeClassName"] = runtime;
  return pod;
}

}  // namespace

Result<std::string> Kubernetes(const Profile& profile) {
  // Each node needs the filter as a file; if the filter cannot be rendered, neither can the pods.
  CAISSON_TRY_VOID(SeccompDocument(profile));
  const std::string name = "caisson-" + PlainName(profile, '-');
  const ordered_json labels = Metadata(name)["labels"];
  const ordered_json policy = {{"apiVersion", "networking.k8s.io/v1"},
                               {"kind", "NetworkPolicy"},
                               {"metadata", Metadata(name)},
                               {"spec",
                                {{"podSelector", {{"matchLabels", labels}}},
                                 {"policyTypes", ordered_json::array({"Ingress", "Egress"})},
                                 {"ingress", ordered_json::array()},
                                 {"egress", ordered_json::array()}}}};
  const ordered_json job = {{"apiVersion", "batch/v1"},
                            {"kind", "Job"},
                            {"metadata", Metadata(name)},
                            {"spec",
                             {{"parallelism", 1},
                              {"completions", 1},
                              {"backoffLimit", 0},
                              {"activeDeadlineSeconds", std::max<int64_t>(1, profile.limits.budget_ms / 1000)},
                              {"ttlSecondsAfterFinished", kSecondsKeptAfterwards},
                              {"template", {{"metadata", {{"labels", labels}}}, {"spec", Pod(profile)}}}}}};
  // The policy comes first: no pod may start before the policy exists.
  std::string text;
  WriteYaml(policy, 0, text);
  text += "---\n";
  WriteYaml(job, 0, text);
  return text;
}

}  // namespace caisson::policy::render
