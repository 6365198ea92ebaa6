#include "runtime/native/lower.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "linux/capability_names.h"
#include "linux/syscall_names.h"
#include "policy/losses.h"
#include "policy/network_plan.h"
#include "runtime/native/description.h"

namespace caisson::runtime::native {

sandbox::Access Lower(policy::Access access) {
  switch (access) {
    case policy::Access::kReadOnly:
      return sandbox::Access::kReadOnly;
    case policy::Access::kCopyOnWrite:
      return sandbox::Access::kCopyOnWrite;
    case policy::Access::kReadWrite:
      return sandbox::Access::kReadWrite;
  }
  return sandbox::Access::kReadOnly;
}

namespace {

sandbox::FileKind Lower(policy::FileKind kind) {
  switch (kind) {
    case policy::FileKind::kRegular:
      return sandbox::FileKind::kRegular;
    case policy::FileKind::kSymlink:
      return sandbox::FileKind::kSymlink;
    case policy::FileKind::kDirectory:
      return sandbox::FileKind::kDirectory;
  }
  return sandbox::FileKind::kRegular;
}

sandbox::Mount Lower(policy::PlannedMount mount) {
  return {std::move(mount.source.fd), std::move(mount.source.canonical), std::move(mount.target),
          native::Lower(mount.access)};
}

sandbox::RootImage Lower(policy::PlannedRoot root) {
  sandbox::RootImage lowered{std::move(root.fd), std::move(root.path), {}};
  for (policy::RootEntry& entry : root.entries) {
    lowered.entries.push_back(
        {std::move(entry.name), static_cast<sandbox::RootEntryKind>(entry.kind), std::move(entry.target)});
  }
  return lowered;
}
static_assert(static_cast<int>(policy::RootEntryKind::kMerged) == static_cast<int>(sandbox::RootEntryKind::kMerged));

// The profile's variables describe the sandbox, so they win over the image's, except those that say where the image has
// its programs and how it speaks.
Environment Merge(Environment image, const Environment& profile) {
  constexpr std::array<std::string_view, 3> kOfImage = {"PATH", "LANG", "SHELL"};
  for (const auto& [key, value] : profile) {
    const auto found = std::find_if(image.begin(), image.end(), [&k = key](const auto& one) { return one.first == k; });
    if (found == image.end()) {
      image.emplace_back(key, value);
    } else if (std::find(kOfImage.begin(), kOfImage.end(), key) == kOfImage.end()) {
      found->second = value;
    }
  }
  return image;
}

std::vector<int32_t> Numbers(const std::vector<std::string>& names) {
  std::vector<int32_t> numbers;
  for (const std::string& name : names) {
    numbers.push_back(linux_sys::SyscallNumber(name));
    CAISSON_CHECK(numbers.back() >= 0);  // the reader of profiles knows the same table
  }
  return numbers;
}

Result<sandbox::Network> Lower(const policy::NetworkRules& rules) {
  Result<policy::NetworkPlan> plan = policy::MakeNetworkPlan(rules);
  if (!plan) return std::move(plan).error().In("network");
  sandbox::Network network;
  network.pool = plan->pool;
  network.pool_bits = plan->pool_bits;
  for (const auto& [allow, texts] : {std::pair{true, &plan->allow}, std::pair{false, &plan->deny}}) {
    for (const auto& rule : *texts) network.rules.push_back({allow, rule.text, rule.label});
  }
  network.addresses = std::move(plan->addresses);
  network.private_ranges = rules.private_ranges;
  for (const auto& [name, address] : rules.hosts) network.hosts.push_back({name, address});
  network.host_ports = rules.host_ports;
  network.max_connections = static_cast<uint32_t>(rules.limits.connections);
  network.connections_per_second = static_cast<uint32_t>(rules.limits.connections_per_second);
  network.max_bytes = static_cast<uint64_t>(rules.limits.bytes);
  network.bytes_per_second = static_cast<uint64_t>(rules.limits.bytes_per_second);
  return network;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// What stands for the secret inside: of no use to its reader, and not to be guessed, so that its occurrence elsewhere
// means something.
Result<std::string> MakePlaceholder() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return Error::System(errno, "draw a random number");
  std::string text = "caisson-placeholder-";
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

Result<sandbox::NetworkCredential> Lower(policy::PlannedCredential planned) {
  const policy::Credential& bound = planned.bound;
  sandbox::NetworkCredential credential;
  credential.name = bound.name;
  credential.host = bound.host;
  credential.port = bound.port;
  credential.path = bound.path;
  credential.header = bound.header;
  credential.value = bound.value;
  CAISSON_TRY(credential.placeholder, MakePlaceholder());
  credential.methods = Joined(bound.methods);
  credential.paths = Joined(bound.paths);
  credential.git_read_only = bound.git == policy::GitAccess::kRead;
  credential.secret = std::move(planned.secret);
  if (planned.ca) credential.ca = std::move(planned.ca);
  return credential;
}

// Programs that bring their own list of certificates are pointed at the sandbox's, which has the machine's and one
// more.
constexpr const char* kTrustVariables[] = {"SSL_CERT_FILE",       "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                           "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",     "PIP_CERT",
                                           "AWS_CA_BUNDLE",       "CARGO_HTTP_CAINFO"};

void SetVariable(Environment& environment, const std::string& name, const std::string& value) {
  bool replaced = false;
  for (auto& [known, current] : environment) {
    if (known == name) {
      current = value;
      replaced = true;
    }
  }
  if (!replaced) environment.emplace_back(name, value);
}

void SetDefault(Environment& environment, const std::string& name, const std::string& value) {
  const bool known =
      std::any_of(environment.begin(), environment.end(), [&](const auto& variable) { return variable.first == name; });
  if (!known) environment.emplace_back(name, value);
}

bool Lists(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

Result<LoweredPlan> Lower(policy::RunPlan plan, const policy::RuntimeDescription& runtime) {
  const policy::Profile& profile = plan.profile;
  LoweredPlan lowered_plan;
  // SECURITY: a profile that the spec cannot express is refused here; it never runs with a wall missing.
  for (const policy::Loss& loss : policy::FindLosses(profile)) {
    if (runtime.NeedsWall(loss.wall)) {
      return Error::Denied("profile " + profile.name + ", " + loss.wall + ": the runtime " + runtime.name +
                           " does not run without it (" + loss.what + ")");
    }
    lowered_plan.given_up.push_back(loss.wall + ": given up by the profile; " + loss.what);
  }
  sandbox::Spec& spec = lowered_plan.spec;
  spec.seccomp = sandbox::FindSeccompProgram(profile.seccomp.filter.c_str());
  if (spec.seccomp == nullptr)
    return Error::Invalid("profile " + profile.name + ": no seccomp filter named " + profile.seccomp.filter);
  // The watched filter exists only for profiles that accept watched limits, and only they need it.
  spec.seccomp_watched = sandbox::FindSeccompProgram((profile.seccomp.filter + "-watched").c_str());
  spec.allowed_calls = Numbers(profile.seccomp.allow);
  spec.denied_calls = Numbers(profile.seccomp.deny);
  spec.share_ipc = !profile.Has(policy::Namespace::kIpc);
  spec.share_uts = !profile.Has(policy::Namespace::kUts);
  spec.share_cgroup = !profile.Has(policy::Namespace::kCgroup);
  spec.share_time = !profile.Has(policy::Namespace::kTime);
  spec.system_paths = profile.system_paths;
  spec.devices = profile.devices;
  spec.writable_tmp = Lists(profile.writable_paths, "/tmp");
  spec.writable_shm = Lists(profile.writable_paths, "/dev/shm");
  spec.landlock = profile.landlock;
  spec.limits = {plan.limits.memory_bytes, plan.limits.processes,     plan.limits.cpu_millis,
                 plan.limits.output_bytes, plan.limits.scratch_bytes, plan.limits.scratch_inodes,
                 plan.limits.cpu_time_ms,  plan.limits.stack_bytes};
  spec.etc_paths = plan.profile.etc_paths;
  spec.masked_files = plan.profile.proc.masked_files;
  spec.masked_directories = plan.profile.proc.masked_directories;
  spec.proc_pids_only = plan.profile.proc.pids_only;
  spec.allow_watched_limits = plan.profile.Allows("cgroup");
  spec.allow_no_landlock = plan.profile.Allows("landlock");
  spec.ignored_write_components = plan.profile.ignored_writes;
  for (const policy::ProbeRule& probe : plan.profile.probes)
    spec.probes.push_back({probe.reason, probe.write, probe.why});
  spec.workspace_files_writable = plan.workspace_access != policy::Access::kReadOnly;
  for (policy::PlannedFile& file : plan.workspace_files) {
    spec.workspace_files.push_back({std::move(file.path), std::move(file.bytes), file.mode, Lower(file.kind)});
  }
  if (plan.workspace_mount) spec.workspace = Lower(*std::move(plan.workspace_mount));
  if (plan.workspace_layer)
    spec.workspace_layer = sandbox::Layer{std::move(plan.workspace_layer->fd), std::move(plan.workspace_layer->path)};
  for (policy::PlannedMount& mount : plan.mounts) spec.mounts.push_back(Lower(std::move(mount)));
  if (plan.profile.network.mode == policy::NetworkMode::kAllowlist) {
    CAISSON_TRY(spec.network, Lower(plan.profile.network));
  } else if (plan.has_network()) {
    spec.network.emplace();  // nothing can be reached from inside
  }
  lowered_plan.environment = std::move(plan.profile.environment);
  if (plan.image) {
    if (plan.image->root) spec.root = Lower(*std::move(plan.image->root));
    lowered_plan.environment = Merge(std::move(plan.image->environment), lowered_plan.environment);
  }
  if (spec.network) {
    spec.network->attended = plan.attended && plan.profile.network.ask;
    spec.network->ask_ms = static_cast<uint32_t>(plan.profile.approvals.wait_ms);
  }
  for (policy::PlannedForward& forward : plan.forwards)
    spec.network->forwards.push_back({std::move(forward.listener), forward.port, forward.inside_port});
  for (policy::PlannedCredential& planned : plan.credentials) {
    const std::string variable = planned.bound.environment;
    CAISSON_TRY(sandbox::NetworkCredential credential, Lower(std::move(planned)));
    if (!variable.empty()) SetVariable(lowered_plan.environment, variable, credential.placeholder);
    for (const char* name : kTrustVariables) SetDefault(lowered_plan.environment, name, sandbox::kTrustBundlePath);
    spec.network->credentials.push_back(std::move(credential));
  }
  return lowered_plan;
}

sandbox::Command Lower(const Command& command, const Environment& environment) {
  Environment merged = environment;
  for (const auto& [key, value] : command.env) SetVariable(merged, key, value);
  sandbox::Command lowered;
  lowered.argv = command.argv;
  lowered.env.reserve(merged.size());
  for (auto& [key, value] : merged) lowered.env.push_back(std::move(key.append("=").append(value)));
  lowered.cwd = command.cwd;
  return lowered;
}

namespace {

bool Mentions(const std::vector<std::string>& degraded, std::string_view resource) {
  return std::any_of(degraded.begin(), degraded.end(), [resource](const std::string& line) {
    return line.compare(0, resource.size() + 1, std::string(resource) + ":") == 0;
  });
}

std::vector<Wall> ListWalls(const sandbox::Isolation& applied) {
  using enum WallState;
  std::vector<Wall> walls;
  const auto add = [&](std::string name, bool stands, std::string evidence) {
    walls.push_back({std::move(name), stands ? kEnforced : kAbsent, std::move(evidence)});
  };
  for (const char* name : policy::kNamespaceNames) {
    const bool own = Lists(applied.walls.namespaces, name);
    add(std::string("namespaces.") + name, own, own ? "PID 1 has one of its own" : "PID 1 is in the supervisor's");
  }
  add("id_range", applied.own_id_range,
      "outside its user is " + (applied.own_id_range ? "one of a range of its own" : std::string("the caller")));
  add("no_new_privileges", applied.walls.no_new_privileges, "NoNewPrivs in the status of PID 1");
  add("capabilities", applied.walls.capabilities == 0, "all five sets in the status of PID 1");
  add("seccomp", applied.walls.filter,
      "Seccomp in the status of PID 1; " + applied.seccomp_profile + " " + applied.seccomp_sha256);
  add("landlock", applied.landlock_abi > 0,
      applied.landlock_abi > 0 ? "landlock_restrict_self, ABI " + std::to_string(applied.landlock_abi)
                               : "not in this kernel or given up by the profile");
  add("read_only_root", applied.walls.read_only_root, "mount flags of the root");
  add("rlimits", applied.walls.most_open_files <= 4096,
      "RLIMIT_NOFILE of PID 1 is " + std::to_string(applied.walls.most_open_files));
  const bool watched = applied.cgroup_driver == sandbox::CgroupDriver::kNone;
  const std::string evidence =
      watched ? "no cgroup; sampled by the supervisor"
              : std::string("cgroup ") + sandbox::DriverName(applied.cgroup_driver) + " took the limit";
  for (const char* limit : {"limits.memory_bytes", "limits.processes"})
    walls.push_back({limit, watched ? kWatched : kEnforced, evidence});
  const bool no_cpu = Mentions(applied.degraded, "cpu");
  add("limits.cpu", !no_cpu, no_cpu ? "no cgroup controller" : evidence);
  return walls;
}

// Whether the filter reports attempts to write, as its rules say.
bool ObservesWrites(const std::string& filter) {
  const sandbox::SeccompProgram* const program = sandbox::FindSeccompProgram(filter.c_str());
  return program != nullptr && std::any_of(program->rules.begin(), program->rules.end(), [](const auto& rule) {
           return rule.disposition == sandbox::Disposition::kObserve &&
                  rule.violation_class == ViolationClass::kFilesystemWrite;
         });
}

std::vector<std::string> CapabilityNames(uint64_t set) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < 64; ++i) {
    if ((set >> i & 1U) == 0) continue;
    names.push_back(i < linux_sys::kCapabilityNames.size() ? linux_sys::kCapabilityNames[i]
                                                           : "CAP_" + std::to_string(i));
  }
  return names;
}

}  // namespace

IsolationReport Describe(const sandbox::Isolation& applied, const std::vector<std::string>& given_up) {
  const policy::RuntimeDescription native = DescribeNative();
  IsolationReport report;
  report.runtime = native.name;
  report.namespaces = applied.walls.namespaces;
  report.seccomp_profile = applied.seccomp_profile;
  report.seccomp_sha256 = applied.seccomp_sha256;
  report.landlock_abi = applied.landlock_abi;
  report.cgroup_driver = sandbox::DriverName(applied.cgroup_driver);
  report.host_uid = int64_t{applied.walls.host_uid};
  report.no_new_privileges = applied.walls.no_new_privileges;
  report.capabilities = CapabilityNames(applied.walls.capabilities);
  report.walls = ListWalls(applied);
  report.cannot_observe = native.CannotObserve();
  if (!ObservesWrites(applied.seccomp_profile))
    report.cannot_observe.emplace_back(ClassName(ViolationClass::kFilesystemWrite));
  report.start = policy::kStartNames[static_cast<size_t>(applied.start)];
  report.degraded = applied.degraded;
  report.degraded.insert(report.degraded.end(), given_up.begin(), given_up.end());
  return report;
}

}  // namespace caisson::runtime::native
