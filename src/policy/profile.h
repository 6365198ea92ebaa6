// An isolation profile: everything about a sandbox that is not the request's to choose. The built-in ones are
// profiles/*.yaml, turned into this struct when the project is built; an operator's own extend one of them
// (policy/profile_reader.h). docs/operator/isolation-spec.md explains every key.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/limits.h"

namespace caisson::policy {

enum class OnViolation { kFail, kReport };

// The warmest start a profile accepts; each includes the one before it.
enum class Start { kCold, kParked, kZygote };
inline constexpr const char* kStartNames[] = {"cold", "parked", "zygote"};
enum class Access { kReadOnly, kCopyOnWrite, kReadWrite };
inline constexpr std::array<const char*, 3> kAccessNames = {"ro", "cow", "rw"};

// How far a workload is from the host's kernel, weakest first.
enum class Tier { kNative, kGvisor, kMicroVm };
inline constexpr std::array<const char*, 3> kTierNames = {"native", "gvisor", "microvm"};

enum class Namespace { kUser, kPid, kMount, kNetwork, kIpc, kUts, kCgroup, kTime };
inline constexpr std::array<const char*, 8> kNamespaceNames = {"user", "pid", "mount",  "network",
                                                               "ipc",  "uts", "cgroup", "time"};

enum class NetworkMode { kNone, kAllowlist };
inline constexpr std::array<const char*, 2> kNetworkModeNames = {"none", "allowlist"};

struct SeccompRules {
  std::string filter;              // one of profiles/seccomp; "none" is spelled so that it can be refused by name
  std::vector<std::string> allow;  // system calls let through whatever the filter says
  std::vector<std::string> deny;   // refused and recorded whatever the filter says
};

struct ProcView {
  bool pids_only = false;  // subset=pid: nothing but processes
  std::vector<std::string> masked_files;
  std::vector<std::string> masked_directories;
};

// A host path shown to every run under the profile. Judged like one a request asks for.
struct ProfileMount {
  std::string source;
  std::string target;
  Access access = Access::kReadOnly;
};

struct NetworkRules {
  NetworkMode mode = NetworkMode::kNone;
  std::vector<std::string> allow;  // "host[:port]"
};

struct AllowedPath {
  std::string path;
  Access access = Access::kReadOnly;  // the most that may be asked for there
};

// Which host paths requests may ask for. Most specific path wins; at the same path a denial beats a permission.
struct ProjectPaths {
  std::string root_path;  // what relative paths below are relative to; itself not allowed unless listed
  std::vector<AllowedPath> allowed_paths;
  std::vector<std::string> denied_paths;
};

struct Profile {
  std::string name;
  std::string description;
  std::string built_in;  // the built-in profile at the root of its `extends` chain: what losses are measured against
  Tier tier = Tier::kNative;
  uint8_t namespaces = 0xff;              // bit N: Namespace N is new
  std::vector<std::string> system_paths;  // host trees shown read-only at the same place, where they exist
  std::vector<std::string> etc_paths;     // the same below /etc
  std::vector<std::string> devices;
  ProcView proc;
  std::vector<ProfileMount> mounts;
  Access workspace = Access::kReadOnly;
  std::vector<std::string> writable_paths;
  SeccompRules seccomp;
  bool landlock = true;
  std::vector<std::string> capabilities;  // kept ones: none, or the native tier refuses
  bool no_new_privileges = true;
  Limits limits;
  NetworkRules network;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> ignored_writes;  // path components whose refused writes are not counted
  OnViolation on_violation = OnViolation::kFail;
  Start start = Start::kZygote;
  std::vector<std::string> allow_degraded;  // walls it accepts losing where the machine lacks them
  std::optional<ProjectPaths> project;

  bool Allows(std::string_view degraded_wall) const;
  bool Has(Namespace which) const { return (namespaces >> static_cast<unsigned>(which) & 1U) != 0; }
};

// The built-in profiles, in the order of their files' names.
const std::vector<Profile>& BuiltInProfiles();
// nullptr when there is none of that name.
const Profile* FindBuiltIn(std::string_view name);

}  // namespace caisson::policy
