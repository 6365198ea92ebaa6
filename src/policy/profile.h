// An isolation profile: all properties of a sandbox that a request may not choose. The built-in profiles are
// profiles/*.yaml, which the build turns into this struct; a profile of the operator extends one of them
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

// How far the runtime keeps a workload from the host's kernel, weakest first.
enum class Strength { kNative, kContainer, kGvisor, kMicroVm };
inline constexpr std::array<const char*, 4> kStrengthNames = {"native", "container", "gvisor", "microvm"};
inline const char* NameOf(Strength strength) { return kStrengthNames[static_cast<size_t>(strength)]; }

enum class Namespace { kUser, kPid, kMount, kNetwork, kIpc, kUts, kCgroup, kTime };
inline constexpr std::array<const char*, 8> kNamespaceNames = {"user", "pid", "mount",  "network",
                                                               "ipc",  "uts", "cgroup", "time"};

enum class NetworkMode { kNone, kAllowlist };
inline constexpr std::array<const char*, 2> kNetworkModeNames = {"none", "allowlist"};

struct SeccompRules {
  std::string filter;              // one of profiles/seccomp; "none" can be spelled so that it can be refused by name
  std::vector<std::string> allow;  // system calls that pass without asking the filter
  std::vector<std::string> deny;   // refused and recorded without asking the filter
};

struct ProcView {
  bool pids_only = false;  // subset=pid: nothing but processes
  std::vector<std::string> masked_files;
  std::vector<std::string> masked_directories;
};

// A host path shown to every run under the profile. Policy judges it like a path that a request asks for.
struct ProfileMount {
  std::string source;
  std::string target;
  Access access = Access::kReadOnly;
};

// A refused attempt that ordinary libraries make and can do without: the result lists a notice, not a violation.
struct ProbeRule {
  std::string reason;  // of a denied system call: one of kProbeReasons; or
  std::string write;   // a path inside, at or below which files are opened for writing or made
  std::string why;     // which libraries make it, for people

  const std::string& name() const { return reason.empty() ? write : reason; }
};
// The reasons that rules of profiles/seccomp give to calls that have no effect in the form the rule matches.
inline constexpr std::array<const char*, 2> kProbeReasons = {"syscall.fanotify", "syscall.numa"};

// How much a sandbox may use of the network; 0 where there is no limit.
struct NetworkLimits {
  int64_t connections = 256;             // at a time
  int64_t connections_per_second = 100;  // new ones
  int64_t bytes = 0;                     // both ways together, of the whole run
  int64_t bytes_per_second = 0;          // likewise
};
struct NetworkLimitField {
  const char* name;
  int64_t NetworkLimits::*value;
  bool is_size;  // a number of bytes, for which people write 10MiB
  bool may_be_none;
  int64_t most;
};
inline constexpr std::array<NetworkLimitField, 4> kNetworkLimitFields = {{
    {"connections", &NetworkLimits::connections, false, false, 4096},
    {"connections_per_second", &NetworkLimits::connections_per_second, false, false, 100000},
    {"bytes", &NetworkLimits::bytes, true, true, int64_t{1} << 50},
    {"bytes_per_second", &NetworkLimits::bytes_per_second, true, true, int64_t{1} << 40},
}};

struct NetworkRules {
  NetworkMode mode = NetworkMode::kNone;
  std::vector<std::string> allow;                          // rules of network/rule.h and classes of destinations
  std::vector<std::string> deny;                           // rules that take precedence over `allow`
  std::string pool = "198.18.0.0/15";                      // the addresses that stand for names inside
  std::vector<std::string> private_ranges;                 // may be reached by name although they are not public
  std::vector<std::pair<std::string, std::string>> hosts;  // names that are known without DNS, and their addresses
  std::vector<uint16_t> host_ports;      // of the host's loopback; each is at 127.0.0.1 and the same port inside
  std::vector<std::string> credentials;  // names in the operator's credentials file (policy/credentials.h)
  bool ask = false;                      // an attended run asks about destinations that no rule names
  NetworkLimits limits;
};

// What a program inside may ask for while a session runs (session/ask_request.h), and what is done about it.
enum class Escalation : uint8_t { kDeny, kAsk, kAllow };
inline constexpr std::array<const char*, 3> kEscalationNames = {"deny", "ask", "allow"};
enum class EscalationKind : uint8_t { kNetwork, kInstall, kTime, kMemory, kMount, kHostPort, kCredential };
inline constexpr std::array<const char*, 7> kEscalationKindNames = {"network", "install",   "time",      "memory",
                                                                    "mount",   "host_port", "credential"};
inline const char* NameOf(EscalationKind kind) { return kEscalationKindNames[static_cast<size_t>(kind)]; }
// Of the others only `deny` is accepted: a sandbox that runs cannot be given them.
inline constexpr size_t kLiveEscalationKinds = 3;

struct Approvals {
  std::array<Escalation, kEscalationKindNames.size()> kinds{};
  int64_t wait_ms = 60'000;  // without an answer until then, a question is denied

  Escalation of(EscalationKind kind) const { return kinds[static_cast<size_t>(kind)]; }
  // Whether programs inside find a socket to ask at.
  bool offered() const { return kinds != decltype(kinds){}; }
};

struct AllowedPath {
  std::string path;
  Access access = Access::kReadOnly;  // the most access that a request may ask for there
};

// Which host paths requests may ask for. Most specific path wins; at the same path a denial beats a permission.
struct ProjectPaths {
  std::string root_path;  // base of the relative paths below; not allowed itself unless listed
  std::vector<AllowedPath> allowed_paths;
  std::vector<std::string> denied_paths;
};

struct Profile {
  std::string name;
  std::string description;
  std::string built_in;  // the built-in profile at the root of the `extends` chain; losses are measured against it
  Strength strength = Strength::kNative;
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
  std::vector<std::string> capabilities;  // kept capabilities; the native runtime refuses any
  bool no_new_privileges = true;
  Limits limits;
  NetworkRules network;
  Approvals approvals;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> ignored_writes;  // a refused write below a component of such a name is not counted
  std::vector<ProbeRule> probes;            // refused attempts that are notices
  OnViolation on_violation = OnViolation::kFail;
  Start start = Start::kZygote;
  std::vector<std::string> allow_degraded;  // walls that the profile accepts losing where the machine lacks them
  std::optional<ProjectPaths> project;

  bool Allows(std::string_view degraded_wall) const;
  bool Has(Namespace which) const { return (namespaces >> static_cast<unsigned>(which) & 1U) != 0; }
};

// The built-in profiles, in the order of their files' names.
const std::vector<Profile>& BuiltInProfiles();
// nullptr when there is none of that name.
const Profile* FindBuiltIn(std::string_view name);

}  // namespace caisson::policy
