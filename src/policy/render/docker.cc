#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

using nlohmann::ordered_json;

namespace {

// By Strength: the names under which their installers register themselves with Docker.
constexpr const char* kRuntimes[] = {"runc", "runc", "runsc", "kata"};

ordered_json Tmpfs(const Profile& profile) {
  ordered_json areas = ordered_json::object();
  const std::string id = std::to_string(kInsideId);
  for (const WritableArea& area : WritableAreas(profile)) {
    // "exec" because Docker's default is noexec, and tests run the programs that they build.
    areas[area.path] = "rw,nosuid,nodev,exec,mode=" + std::string(area.mode) + ",uid=" + id + ",gid=" + id +
                       ",size=" + std::to_string(area.bytes) + ",nr_inodes=" + std::to_string(area.inodes);
  }
  return areas;
}

ordered_json Mounts(const Profile& profile) {
  ordered_json mounts = ordered_json::array();
  mounts.push_back({{"Type", "volume"},
                    {"Source", kWorkspaceName},
                    {"Target", "/workspace"},
                    {"ReadOnly", profile.workspace != Access::kReadWrite},
                    {"VolumeOptions", {{"NoCopy", true}}}});
  for (const ProfileMount& mount : profile.mounts) {
    const bool read_only = mount.access != Access::kReadWrite;
    ordered_json options = {{"Propagation", "rprivate"}};
    // Otherwise mounts below the source stay writable on kernels that lack recursive read-only mounts.
    if (read_only) options["ReadOnlyForceRecursive"] = true;
    mounts.push_back({{"Type", "bind"},
                      {"Source", mount.source},
                      {"Target", mount.target},
                      {"ReadOnly", read_only},
                      {"BindOptions", std::move(options)}});
  }
  return mounts;
}

ordered_json HostConfig(const Profile& profile, const ordered_json& seccomp) {
  ordered_json ulimits = ordered_json::array();
  for (const ProcessLimit& limit : ProcessLimits(profile))
    ulimits.push_back({{"Name", limit.name}, {"Soft", limit.soft}, {"Hard", limit.hard}});
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
      {"SecurityOpt", ordered_json::array({"no-new-privileges=true", "seccomp=" + seccomp.dump()})},
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
      {"Tmpfs", Tmpfs(profile)},
      {"Mounts", Mounts(profile)},
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
  return config;
}

}  // namespace

Result<std::string> Docker(const Profile& profile) {
  CAISSON_TRY(const ordered_json seccomp, SeccompDocument(profile));
  ordered_json environment = ordered_json::array();
  for (const auto& [name, value] : profile.environment) environment.push_back(name + "=" + value);
  const std::string id = std::to_string(kInsideId);
  return PrintJson({
      {"Image", kPlaceholderImage},
      // One empty string removes the entry point of the image.
      {"Entrypoint", ordered_json::array({""})},
      {"Cmd", ordered_json::array({kPlaceholderProgram})},
      {"Healthcheck", {{"Test", ordered_json::array({"NONE"})}}},
      {"User", id + ":" + id},
      {"Env", std::move(environment)},
      {"WorkingDir", "/workspace"},
      {"Hostname", kHostname},
      {"NetworkDisabled", true},
      {"Tty", false},
      {"OpenStdin", false},
      {"Labels", {{"org.caisson.profile", profile.name}}},
      {"HostConfig", HostConfig(profile, seccomp)},
  });
}

}  // namespace caisson::policy::render
