#include <algorithm>

#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

using nlohmann::ordered_json;

namespace {

// By Strength: the names under which their installers register themselves with Docker.
constexpr const char* kRuntimes[] = {"runc", "runc", "runsc", "kata"};

// Every container has these devices, regardless of the configuration.
constexpr const char* kEngineDevices[] = {"null", "zero", "full", "random", "urandom"};

std::string UserId(const EngineContainer* container) {
  return std::to_string(container != nullptr ? container->user_id : int64_t{kInsideId});
}

ordered_json Tmpfs(const Profile& profile, const EngineContainer* container) {
  ordered_json areas = ordered_json::object();
  const std::string id = UserId(container);
  const auto add = [&](const WritableArea& area) {
    // "exec" because Docker's default is noexec, and tests run the programs that they build.
    areas[area.path] = "rw,nosuid,nodev,exec,mode=" + std::string(area.mode) + ",uid=" + id + ",gid=" + id +
                       ",size=" + std::to_string(area.bytes) + ",nr_inodes=" + std::to_string(area.inodes);
  };
  for (const WritableArea& area : WritableAreas(profile)) add(area);
  if (container != nullptr && container->workspace_bytes > 0)
    add({"/workspace", container->workspace_bytes, profile.limits.scratch_inodes, "0755"});
  return areas;
}

ordered_json Bind(const std::string& source, const std::string& target, bool read_only) {
  ordered_json options = {{"Propagation", "rprivate"}};
  // Otherwise mounts below the source stay writable on kernels that lack recursive read-only mounts.
  if (read_only) options["ReadOnlyForceRecursive"] = true;
  return {{"Type", "bind"},
          {"Source", source},
          {"Target", target},
          {"ReadOnly", read_only},
          {"BindOptions", std::move(options)}};
}

ordered_json MountsOfRun(const EngineContainer& container) {
  ordered_json mounts = ordered_json::array();
  for (const std::string& path : container.present) mounts.push_back(Bind(path, path, true));
  for (const BundleMount& mount : container.mounts) mounts.push_back(Bind(mount.source, mount.target, !mount.writable));
  return mounts;
}

ordered_json Mounts(const Profile& profile) {
  ordered_json mounts = ordered_json::array();
  mounts.push_back({{"Type", "volume"},
                    {"Source", kWorkspaceName},
                    {"Target", "/workspace"},
                    {"ReadOnly", profile.workspace != Access::kReadWrite},
                    {"VolumeOptions", {{"NoCopy", true}}}});
  for (const ProfileMount& mount : profile.mounts)
    mounts.push_back(Bind(mount.source, mount.target, mount.access != Access::kReadWrite));
  return mounts;
}

ordered_json HostConfig(const Profile& profile, const std::string& seccomp, const EngineContainer* container) {
  ordered_json ulimits = ordered_json::array();
  for (const ProcessLimit& limit : ProcessLimits(profile)) {
    if (container != nullptr) break;
    ulimits.push_back({{"Name", limit.name}, {"Soft", limit.soft}, {"Hard", limit.hard}});
  }
  // The native runtime has neither, but Docker always mounts both, the second one writable.
  std::vector<std::string> masked = MaskedPaths(profile);
  masked.insert(masked.end(), {"/sys", "/dev/mqueue"});
  int64_t shared_memory = 0;
  for (const WritableArea& area : WritableAreas(profile)) {
    if (area.path == "/dev/shm") shared_memory = area.bytes;
  }
  const Limits& limits = profile.limits;
  ordered_json config = {
      {"Runtime", kRuntimes[static_cast<size_t>(profile.strength)]},
      {"Privileged", false},
      {"ReadonlyRootfs", true},
      {"CapAdd", ordered_json::array()},
      {"CapDrop", ordered_json::array({"ALL"})},
      {"SecurityOpt", ordered_json::array({"no-new-privileges=true", "seccomp=" + seccomp})},
      {"NetworkMode", "none"},
      {"PidMode", ""},
      {"UTSMode", ""},
      {"UsernsMode", ""},
      {"IpcMode", "private"},
      {"CgroupnsMode", "private"},
      {"Memory", limits.memory_bytes},
      {"MemorySwap", limits.memory_bytes},
      {"OomKillDisable", false},
      {"PidsLimit", limits.processes},
      {"NanoCpus", limits.cpu_millis * 1'000'000},
      {"Ulimits", std::move(ulimits)},
      {"Tmpfs", Tmpfs(profile, container)},
      {"Mounts", container != nullptr ? MountsOfRun(*container) : Mounts(profile)},
      {"Devices", ordered_json::array()},
      {"MaskedPaths", masked},
      {"ReadonlyPaths", kReadOnlyPaths},
      {"PublishAllPorts", false},
      {"RestartPolicy", {{"Name", "no"}}},
      {"AutoRemove", false},
      {"LogConfig",
       {{"Type", "json-file"}, {"Config", {{"max-size", std::to_string(limits.output_bytes)}, {"max-file", "1"}}}}},
      {"Init", false},
  };
  if (shared_memory == 0)
    config["IpcMode"] = "none";  // private too, and without /dev/shm
  else
    config["ShmSize"] = shared_memory;
  if (container == nullptr) return config;
  config.erase("Runtime");  // the engine's own choice
  // The agent serves name look-ups without a capability.
  config["Sysctls"] = {{"net.ipv4.ip_unprivileged_port_start", "0"}};
  config["LogConfig"] = {{"Type", "none"}};  // the stream goes to the runtime alone
  for (const char* device : kEngineDevices) {
    if (std::find(profile.devices.begin(), profile.devices.end(), device) == profile.devices.end())
      masked.push_back(std::string("/dev/") + device);
  }
  masked.insert(masked.end(), container->masked.begin(), container->masked.end());
  config["MaskedPaths"] = masked;
  return config;
}

ordered_json Environment(const Profile& profile) {
  ordered_json environment = ordered_json::array();
  for (const auto& [name, value] : profile.environment) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace

Result<std::string> Docker(const Profile& profile) {
  CAISSON_TRY(const ordered_json seccomp, SeccompDocument(profile));
  const std::string id = std::to_string(kInsideId);
  return PrintJson({
      {"Image", kPlaceholderImage},
      // One empty string removes the entry point of the image.
      {"Entrypoint", ordered_json::array({""})},
      {"Cmd", ordered_json::array({kPlaceholderProgram})},
      {"Healthcheck", {{"Test", ordered_json::array({"NONE"})}}},
      {"User", id + ":" + id},
      {"Env", Environment(profile)},
      {"WorkingDir", "/workspace"},
      {"Hostname", kHostname},
      {"NetworkDisabled", true},
      {"Tty", false},
      {"OpenStdin", false},
      {"Labels", {{"org.caisson.profile", profile.name}}},
      {"HostConfig", HostConfig(profile, seccomp.dump(), nullptr)},
  });
}

Result<std::string> DockerContainer(const Profile& profile, const EngineContainer& container) {
  const std::string id = UserId(&container);
  ordered_json labels = {{"org.caisson.profile", profile.name}};
  for (const auto& [key, value] : container.labels) labels[key] = value;
  return PrintJson({
      {"Image", container.image},
      {"Entrypoint", ordered_json::array({kAgentInside})},
      {"Cmd", ordered_json::array()},
      {"Healthcheck", {{"Test", ordered_json::array({"NONE"})}}},
      {"User", id + ":" + id},
      {"Env", Environment(profile)},
      {"WorkingDir", "/"},
      {"Hostname", kHostname},
      {"NetworkDisabled", true},
      {"Tty", false},
      // The end of the stream, by the death of the runtime too, is the end of the agent's input.
      {"OpenStdin", true},
      {"StdinOnce", true},
      {"AttachStdin", true},
      {"AttachStdout", true},
      {"AttachStderr", true},
      {"Labels", std::move(labels)},
      {"HostConfig", HostConfig(profile, "unconfined", &container)},
  });
}

}  // namespace caisson::policy::render
