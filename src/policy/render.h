// Renders a profile in the formats of other tools. Each rendering is a pure function of the profile, in its own file
// below render/. Where a tool cannot express a wall, the rendering relies on the walls that the tool has;
// docs/operator/lsm-profiles.md lists the differences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::policy {

// `format` is one of oci, seccomp, apparmor, selinux, docker, kubernetes. For any other, kInvalid lists these.
Result<std::string> Render(std::string_view format, const Profile& profile);

// A directory or file of the host that a bundle shows inside.
struct BundleMount {
  std::string source, target;
  bool writable = false;
  bool executable = true;
};

// The bundle of one run, in which caisson-agent runs the commands. The agent sets limits per process, Landlock and the
// filter on them: an outer filter would refuse what the agent observes, before the agent sees it.
struct Bundle {
  std::string agent;                 // the program, on the host
  std::vector<std::string> present;  // the paths of the profile that this host has
  std::vector<BundleMount> mounts;
  std::string scratch;  // a directory with one subdirectory for each writable path, by its last component
  // The workspace is a file system of its own that may hold this much; 0: one of the mounts is the workspace.
  int64_t workspace_bytes = 0;
  int64_t first_host_id = 0;
  std::string cgroup;
  // For runsc, which has fewer options for mounts, its own /proc and /dev, and needs memory and threads of its own in
  // the container's cgroup. The agent is root of gVisor's kernel, because that kernel protects PID 1 from another
  // user's processes only; the capabilities are that kernel's and none of the host's.
  bool gvisor = false;
  int64_t group_memory_bytes = 0, group_processes = 0;  // of the cgroup; 0: the limits of the profile
};
inline constexpr char kAgentFolder[] = "/.caisson";
inline constexpr char kAgentInside[] = "/.caisson/agent";

// The container of one run in an engine, likewise.
struct EngineContainer {
  std::string image;                 // "sha256:…": a root with the agent at kAgentInside
  std::vector<std::string> present;  // the paths of the profile that this host has
  std::vector<BundleMount> mounts;
  std::vector<std::string> masked;  // besides the profile's
  // The workspace is a file system of its own that may hold this much; 0: one of the mounts is the workspace.
  int64_t workspace_bytes = 0;
  int64_t user_id = 0;
  std::vector<std::pair<std::string, std::string>> labels;
};

// The Job of one run, in whose pod caisson-agent runs the commands. Everything goes in and out through the pod's
// attached streams, so the pod needs no storage, no token and no network. The agent enforces the time limits; the pod's
// deadline ends what outlives a runtime that is gone.
struct PodRun {
  std::string name;
  std::string image;            // with the agent at kAgentInside and the programs that commands use
  std::string pull_policy;      // Always, IfNotPresent or Never
  std::string runtime_class;    // empty: the one of the profile's strength
  std::string seccomp_profile;  // a file of the node; empty: the runtime's default
  std::vector<std::pair<std::string, std::string>> labels, node_selector;
  int64_t workspace_bytes = 0;   // of the files that the agent will write
  int64_t deadline_seconds = 1;  // of the pod
  int64_t kept_seconds = 1;      // after its end
  bool host_users = false;
};
inline constexpr char kAwaitGreeting[] = "--await-greeting";  // caisson-agent speaks when the stream is attached

namespace render {
Result<std::string> Oci(const Profile& profile);  // config.json of an OCI bundle
// The same document for one run: `profile` has the run's limits.
Result<std::string> OciBundle(const Profile& profile, const Bundle& bundle);
Result<std::string> Seccomp(const Profile& profile);   // the profile file Docker and Kubernetes take
Result<std::string> AppArmor(const Profile& profile);  // an AppArmor 3 profile
Result<std::string> SeLinux(const Profile& profile);   // a CIL module
Result<std::string> Docker(const Profile& profile);    // body of POST /containers/create
// The same document for one run: `profile` has the run's limits.
Result<std::string> DockerContainer(const Profile& profile, const EngineContainer& container);
Result<std::string> Kubernetes(const Profile& profile);  // Job and NetworkPolicy, Pod Security "restricted"
// The same Job for one run, as JSON: `profile` has the run's limits.
std::string KubernetesJob(const Profile& profile, const PodRun& run);
}  // namespace render

}  // namespace caisson::policy
