// Assumptions about the bundle: rootfs/ is an empty directory that belongs to the first id of the mapping, because runc
// creates the mount points in it as root of the user namespace; workspace/ holds the source under test. Two containers
// that run at the same time need separate ranges of ids.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

using nlohmann::ordered_json;

namespace {

// The first range the native runtime gives to a sandbox.
constexpr int64_t kFirstHostId = 1879048192;
constexpr int64_t kIds = 65536;
constexpr int64_t kCpuPeriod = 100'000;  // microseconds

// The profile shows these "where they exist", which a bundle cannot express: runc refuses a mount without its source.
// Many hosts lack these paths, so the bundle omits them; a profile's own paths are assumed to exist.
constexpr const char* kOftenMissing[] = {"/lib32", "/libx32", "/etc/java-17-openjdk"};

// By Namespace. runc 1.1 does not know the last one and refuses unknown types.
constexpr const char* kTypes[] = {"user", "pid", "mount", "network", "ipc", "uts", "cgroup", nullptr};

// Every container has these devices, regardless of the configuration.
constexpr const char* kRuntimeDevices[] = {"null", "zero", "full", "random", "urandom", "tty"};

bool IsOftenMissing(const std::string& path) {
  return std::find(std::begin(kOftenMissing), std::end(kOftenMissing), path) != std::end(kOftenMissing);
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// A symbolic link as source (/bin on a merged /usr) is followed: both names show the same files.
ordered_json Bind(const std::string& source, const std::string& target, Access access, const Bundle* bundle,
                  bool executable = true) {
  if (bundle != nullptr && bundle->gvisor) {
    // Inside a tree of gVisor's there are no mounts, so "ro" applies to all of it.
    ordered_json options = {"rbind", access == Access::kReadWrite ? "rw" : "ro", "nosuid", "nodev", "rprivate"};
    if (!executable) options.push_back("noexec");
    return {{"destination", target}, {"type", "bind"}, {"source", source}, {"options", std::move(options)}};
  }
  // The r* options apply to mounts below the source too, which "ro" would leave writable.
  ordered_json options = {"rbind", access == Access::kReadWrite ? "rw" : "rro", "rnosuid", "rnodev", "rprivate"};
  if (!executable) options.push_back("rnoexec");
  return {{"destination", target}, {"type", "bind"}, {"source", source}, {"options", std::move(options)}};
}

ordered_json Tmpfs(const std::string& target, const char* mode, int64_t bytes, int64_t inodes,
                   const char* source = "tmpfs") {
  const std::string id = std::to_string(kInsideId);
  return {{"destination", target},
          {"type", "tmpfs"},
          {"source", source},
          {"options",
           {"nosuid", "nodev", std::string("mode=") + mode, "uid=" + id, "gid=" + id, "size=" + std::to_string(bytes),
            "nr_inodes=" + std::to_string(inodes)}}};
}

bool IsShown(const std::string& path, const Bundle* bundle) {
  if (bundle == nullptr) return !IsOftenMissing(path);
  return std::find(bundle->present.begin(), bundle->present.end(), path) != bundle->present.end();
}

ordered_json Mounts(const Profile& profile, const Bundle* bundle) {
  ordered_json proc = {"nosuid", "nodev", "noexec", "ro"};
  const bool gvisor = bundle != nullptr && bundle->gvisor;
  if (profile.proc.pids_only && !gvisor) proc.insert(proc.end(), {"subset=pid", "hidepid=invisible"});
  // As in native sandboxes: the mount table inside shows the source.
  const auto source = [&](const char* name) { return bundle == nullptr ? name : "none"; };
  ordered_json mounts = {
      {{"destination", "/proc"}, {"type", "proc"}, {"source", source("proc")}, {"options", std::move(proc)}},
      {{"destination", "/dev"},
       {"type", "tmpfs"},
       {"source", source("tmpfs")},
       {"options", {"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "nr_inodes=64", "ro"}}},
  };
  // gVisor refuses to write to devices of a read-only mount. The directory is root's, and the workload is not.
  if (gvisor) mounts[1]["options"].erase(6);
  for (const std::vector<std::string>* paths : {&profile.system_paths, &profile.etc_paths}) {
    for (const std::string& path : *paths) {
      if (IsShown(path, bundle)) mounts.push_back(Bind(path, path, Access::kReadOnly, bundle));
    }
  }
  for (const WritableArea& area : WritableAreas(profile)) {
    // A bundle has one file system under one cap, like a native sandbox.
    mounts.push_back(bundle == nullptr ? Tmpfs(area.path, area.mode, area.bytes, area.inodes)
                                       : Bind(bundle->scratch + area.path.substr(area.path.rfind('/')), area.path,
                                              Access::kReadWrite, bundle));
  }
  if (bundle != nullptr) {
    if (!gvisor) {
      mounts.push_back({{"destination", "/dev/pts"},
                        {"type", "devpts"},
                        {"source", source("devpts")},
                        {"options", {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=64"}}});
    }
    if (bundle->workspace_bytes > 0)
      mounts.push_back(Tmpfs("/workspace", "0755", bundle->workspace_bytes, profile.limits.scratch_inodes, "none"));
    for (const BundleMount& mount : bundle->mounts)
      mounts.push_back(Bind(mount.source, mount.target, mount.writable ? Access::kReadWrite : Access::kReadOnly, bundle,
                            mount.executable));
    mounts.push_back(Bind(bundle->agent, kAgentInside, Access::kReadOnly, bundle));
    return mounts;
  }
  mounts.push_back(Bind("workspace", "/workspace", profile.workspace, nullptr));
  for (const ProfileMount& mount : profile.mounts)
    mounts.push_back(Bind(mount.source, mount.target, mount.access, nullptr));
  return mounts;
}

ordered_json Process(const Profile& profile, const Bundle* bundle) {
  ordered_json environment = ordered_json::array();
  for (const auto& [name, value] : profile.environment) environment.push_back(name + "=" + value);
  ordered_json limits = ordered_json::array();
  for (const ProcessLimit& limit : ProcessLimits(profile)) {
    if (bundle != nullptr) break;
    std::string type = "RLIMIT_";
    for (const char* letter = limit.name; *letter != '\0'; ++letter) type += static_cast<char>(std::toupper(*letter));
    limits.push_back({{"type", std::move(type)}, {"hard", limit.hard}, {"soft", limit.soft}});
  }
  ordered_json none = ordered_json::array(), kept = none;
  const bool gvisor = bundle != nullptr && bundle->gvisor;
  // To become the user of the workload, to end its processes, and to read the files that it leaves.
  if (gvisor) kept = {"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_DAC_READ_SEARCH"};
  const int64_t id = gvisor ? 0 : kInsideId;
  return {{"terminal", false},
          {"user", {{"uid", id}, {"gid", id}, {"umask", 022}, {"additionalGids", none}}},
          {"args", ordered_json::array({bundle != nullptr ? kAgentInside : kPlaceholderProgram})},
          {"env", std::move(environment)},
          {"cwd", bundle != nullptr ? "/" : "/workspace"},
          {"noNewPrivileges", true},
          {"capabilities",
           {{"bounding", kept}, {"effective", kept}, {"inheritable", none}, {"permitted", kept}, {"ambient", none}}},
          {"rlimits", std::move(limits)}};
}

ordered_json Linux(const Profile& profile, const Bundle* bundle) {
  ordered_json namespaces = ordered_json::array();
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i] != nullptr && profile.Has(static_cast<Namespace>(i))) namespaces.push_back({{"type", kTypes[i]}});
  }
  std::vector<std::string> masked = MaskedPaths(profile);
  for (const char* device : kRuntimeDevices) {
    if (bundle != nullptr && std::string_view(device) == "tty") continue;  // as in native sandboxes
    if (std::find(profile.devices.begin(), profile.devices.end(), device) == profile.devices.end())
      masked.push_back(std::string("/dev/") + device);
  }
  const Limits& limits = profile.limits;
  ordered_json out;
  out["namespaces"] = std::move(namespaces);
  if (profile.Has(Namespace::kUser)) {
    for (const char* key : {"uidMappings", "gidMappings"})
      out[key] = ordered_json::array(
          {{{"containerID", 0}, {"hostID", bundle != nullptr ? bundle->first_host_id : kFirstHostId}, {"size", kIds}}});
  }
  out["rootfsPropagation"] = "rprivate";
  const bool gvisor = bundle != nullptr && bundle->gvisor;
  const int64_t memory =
      bundle != nullptr && bundle->group_memory_bytes > 0 ? bundle->group_memory_bytes : limits.memory_bytes;
  const int64_t processes =
      bundle != nullptr && bundle->group_processes > 0 ? bundle->group_processes : limits.processes;
  out["resources"] = {{"devices", ordered_json::array({{{"allow", false}, {"access", "rwm"}}})},
                      {"memory", {{"limit", memory}, {"swap", memory}, {"disableOOMKiller", false}}},
                      {"pids", {{"limit", processes}}},
                      {"cpu", {{"quota", limits.cpu_millis * kCpuPeriod / 1000}, {"period", kCpuPeriod}}}};
  // gVisor's /proc and /dev are its own and have nothing of the host.
  out["maskedPaths"] = gvisor ? ordered_json::array() : ordered_json(masked);
  out["readonlyPaths"] = gvisor ? ordered_json::array() : ordered_json(kReadOnlyPaths);
  if (bundle != nullptr) out["cgroupsPath"] = bundle->cgroup;
  return out;
}

// The settings of the profile that this file cannot express; docs/operator/lsm-profiles.md has the reasons.
std::vector<std::string> NotRendered(const Profile& profile) {
  std::vector<std::string> walls;
  if (profile.Has(Namespace::kTime)) walls.emplace_back("namespaces.time");
  if (profile.landlock) walls.emplace_back("landlock");
  for (const char* limit : {"command_timeout_ms", "budget_ms", "output_bytes"})
    walls.push_back(std::string("limits.") + limit);
  if (profile.limits.cpu_time_ms != kNoLimit) walls.emplace_back("limits.cpu_time_ms");
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

ordered_json Document(const Profile& profile, const Bundle* bundle) {
  ordered_json document = {{"ociVersion", "1.0.2"},
                           {"root", {{"path", "rootfs"}, {"readonly", true}}},
                           {"process", Process(profile, bundle)},
                           {"mounts", Mounts(profile, bundle)},
                           {"linux", Linux(profile, bundle)},
                           {"annotations",
                            {{"org.caisson.profile", profile.name},
                             {"org.caisson.strength", NameOf(profile.strength)},
                             {"org.caisson.not-rendered", Joined(NotRendered(profile))}}}};
  if (profile.Has(Namespace::kUts)) document["hostname"] = kHostname;
  return document;
}

}  // namespace

Result<std::string> Oci(const Profile& profile) {
  CAISSON_TRY(ordered_json seccomp, SeccompDocument(profile));
  ordered_json document = Document(profile, nullptr);
  document["linux"]["seccomp"] = std::move(seccomp);
  return PrintJson(document);
}

Result<std::string> OciBundle(const Profile& profile, const Bundle& bundle) {
  return PrintJson(Document(profile, &bundle));
}

}  // namespace caisson::policy::render
