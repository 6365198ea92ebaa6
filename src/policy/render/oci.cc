// Assumes of the bundle: rootfs/ is an empty directory that belongs to the first id of the mapping, because runc makes
// the mount points in it as root of the user namespace; workspace/ holds the source under test. Two containers that run
// at the same time need ranges of ids of their own.
#include <algorithm>
#include <cctype>

#include "policy/render.h"
#include "policy/render/parts.h"

namespace caisson::policy::render {

using nlohmann::ordered_json;

namespace {

// The first range the native tier gives to a sandbox.
constexpr int64_t kFirstHostId = 1879048192;
constexpr int64_t kIds = 65536;
constexpr int64_t kCpuPeriod = 100'000;  // microseconds

// Shown "where they exist", which a bundle cannot say: runc refuses a mount without its source. Many hosts lack these,
// so they are left out, and a profile's own paths are taken to exist.
constexpr const char* kOftenMissing[] = {"/lib32", "/libx32", "/etc/java-17-openjdk"};

// By Namespace; runc 1.1 does not know the last and refuses what it does not know.
constexpr const char* kTypes[] = {"user", "pid", "mount", "network", "ipc", "uts", "cgroup", nullptr};

// Made in every container whatever the configuration says.
constexpr const char* kRuntimeDevices[] = {"null", "zero", "full", "random", "urandom", "tty"};

bool IsOftenMissing(const std::string& path) {
  return std::find(std::begin(kOftenMissing), std::end(kOftenMissing), path) != std::end(kOftenMissing);
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// A symbolic link as source (/bin on a merged /usr) is followed: the same files are seen by both names.
ordered_json Bind(const std::string& source, const std::string& target, Access access) {
  // The r* options reach what is mounted below the source, which "ro" would leave writable.
  ordered_json options = {"rbind", access == Access::kReadWrite ? "rw" : "rro", "rnosuid", "rnodev", "rprivate"};
  return {{"destination", target}, {"type", "bind"}, {"source", source}, {"options", std::move(options)}};
}

ordered_json Mounts(const Profile& profile) {
  ordered_json proc = {"nosuid", "nodev", "noexec", "ro"};
  if (profile.proc.pids_only) proc.insert(proc.end(), {"subset=pid", "hidepid=invisible"});
  ordered_json mounts = {
      {{"destination", "/proc"}, {"type", "proc"}, {"source", "proc"}, {"options", std::move(proc)}},
      {{"destination", "/dev"},
       {"type", "tmpfs"},
       {"source", "tmpfs"},
       {"options", {"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "nr_inodes=64", "ro"}}},
  };
  for (const std::vector<std::string>* paths : {&profile.system_paths, &profile.etc_paths}) {
    for (const std::string& path : *paths) {
      if (!IsOftenMissing(path)) mounts.push_back(Bind(path, path, Access::kReadOnly));
    }
  }
  for (const WritableArea& area : WritableAreas(profile)) {
    const std::string id = std::to_string(kInsideId);
    mounts.push_back({{"destination", area.path},
                      {"type", "tmpfs"},
                      {"source", "tmpfs"},
                      {"options",
                       {"nosuid", "nodev", std::string("mode=") + area.mode, "uid=" + id, "gid=" + id,
                        "size=" + std::to_string(area.bytes), "nr_inodes=" + std::to_string(area.inodes)}}});
  }
  mounts.push_back(Bind("workspace", "/workspace", profile.workspace));
  for (const ProfileMount& mount : profile.mounts) mounts.push_back(Bind(mount.source, mount.target, mount.access));
  return mounts;
}

ordered_json Process(const Profile& profile) {
  ordered_json environment = ordered_json::array();
  for (const auto& [name, value] : profile.environment) environment.push_back(name + "=" + value);
  ordered_json limits = ordered_json::array();
  for (const ProcessLimit& limit : ProcessLimits(profile)) {
    std::string type = "RLIMIT_";
    for (const char* letter = limit.name; *letter != '\0'; ++letter) type += static_cast<char>(std::toupper(*letter));
    limits.push_back({{"type", std::move(type)}, {"hard", limit.hard}, {"soft", limit.soft}});
  }
  ordered_json none = ordered_json::array();
  return {{"terminal", false},
          {"user", {{"uid", kInsideId}, {"gid", kInsideId}, {"umask", 022}, {"additionalGids", none}}},
          {"args", ordered_json::array({kPlaceholderProgram})},
          {"env", std::move(environment)},
          {"cwd", "/workspace"},
          {"noNewPrivileges", true},
          {"capabilities",
           {{"bounding", none}, {"effective", none}, {"inheritable", none}, {"permitted", none}, {"ambient", none}}},
          {"rlimits", std::move(limits)}};
}

ordered_json Linux(const Profile& profile, ordered_json seccomp) {
  ordered_json namespaces = ordered_json::array();
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i] != nullptr && profile.Has(static_cast<Namespace>(i))) namespaces.push_back({{"type", kTypes[i]}});
  }
  std::vector<std::string> masked = MaskedPaths(profile);
  for (const char* device : kRuntimeDevices) {
    if (std::find(profile.devices.begin(), profile.devices.end(), device) == profile.devices.end())
      masked.push_back(std::string("/dev/") + device);
  }
  const Limits& limits = profile.limits;
  ordered_json out;
  out["namespaces"] = std::move(namespaces);
  if (profile.Has(Namespace::kUser)) {
    for (const char* key : {"uidMappings", "gidMappings"})
      out[key] = ordered_json::array({{{"containerID", 0}, {"hostID", kFirstHostId}, {"size", kIds}}});
  }
  out["rootfsPropagation"] = "rprivate";
  out["resources"] = {
      {"devices", ordered_json::array({{{"allow", false}, {"access", "rwm"}}})},
      {"memory", {{"limit", limits.memory_bytes}, {"swap", limits.memory_bytes}, {"disableOOMKiller", false}}},
      {"pids", {{"limit", limits.processes}}},
      {"cpu", {{"quota", limits.cpu_millis * kCpuPeriod / 1000}, {"period", kCpuPeriod}}}};
  out["maskedPaths"] = masked;
  out["readonlyPaths"] = kReadOnlyPaths;
  out["seccomp"] = std::move(seccomp);
  return out;
}

// What the profile says and this file cannot; docs/operator/lsm-profiles.md has the reasons.
std::vector<std::string> NotRendered(const Profile& profile) {
  std::vector<std::string> walls;
  if (profile.Has(Namespace::kTime)) walls.emplace_back("namespaces.time");
  if (profile.landlock) walls.emplace_back("landlock");
  for (const char* limit : {"command_timeout_ms", "budget_ms", "output_bytes"})
    walls.push_back(std::string("limits.") + limit);
  if (profile.workspace == Access::kCopyOnWrite) walls.emplace_back("workspace.cow (shown read-only)");
  for (const ProfileMount& mount : profile.mounts) {
    if (mount.access == Access::kCopyOnWrite) walls.push_back("mounts." + mount.target + ".cow (shown read-only)");
  }
  if (profile.network.mode != NetworkMode::kNone) walls.emplace_back("network.allow (nothing is reachable)");
  for (const std::vector<std::string>* paths : {&profile.system_paths, &profile.etc_paths}) {
    for (const std::string& path : *paths) {
      if (IsOftenMissing(path)) walls.push_back(path + " (left out)");
    }
  }
  return walls;
}

}  // namespace

Result<std::string> Oci(const Profile& profile) {
  CAISSON_TRY(ordered_json seccomp, SeccompDocument(profile));
  ordered_json document = {{"ociVersion", "1.0.2"},
                           {"root", {{"path", "rootfs"}, {"readonly", true}}},
                           {"process", Process(profile)},
                           {"mounts", Mounts(profile)},
                           {"linux", Linux(profile, std::move(seccomp))},
                           {"annotations",
                            {{"org.caisson.profile", profile.name},
                             {"org.caisson.tier", kTierNames[static_cast<size_t>(profile.tier)]},
                             {"org.caisson.not-rendered", Joined(NotRendered(profile))}}}};
  if (profile.Has(Namespace::kUts)) document["hostname"] = kHostname;
  return PrintJson(document);
}

}  // namespace caisson::policy::render
