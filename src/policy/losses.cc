#include "policy/losses.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace caisson::policy {

namespace {

constexpr const char* kNamespaceWalls[] = {
    "the workload would be a user of the host",
    "the workload would see and signal the host's processes",
    "the workload would see the host's files",
    "the workload would reach the host's network",
    "shared memory, semaphores and message queues of the host are reachable by the host user it is mapped to",
    "the host's name can be read",
    "the host's cgroup paths can be read",
    "the host's uptime can be read",
};

std::vector<std::string> Minus(const std::vector<std::string>& from, const std::vector<std::string>& what) {
  std::vector<std::string> rest;
  for (const std::string& item : from) {
    if (std::find(what.begin(), what.end(), item) == what.end()) rest.push_back(item);
  }
  return rest;
}

std::string Amount(const LimitField& field, int64_t value) {
  switch (field.unit) {
    case LimitUnit::kBytes:
      return FormatSize(value);
    case LimitUnit::kMilliseconds:
      return FormatDuration(value);
    case LimitUnit::kMilliCpus:
      return std::to_string(value) + "m";
    case LimitUnit::kCount:
      break;
  }
  return std::to_string(value);
}

class Finder {
 public:
  Finder(const Profile& profile, const Profile& base) : profile_(profile), base_(base) {}

  std::vector<Loss> Find() {
    Kernel();
    Files();
    Rules();
    return std::move(losses_);
  }

 private:
  void Add(std::string wall, std::string what) { losses_.push_back({std::move(wall), std::move(what)}); }

  void Kernel() {
    for (size_t i = 0; i < kNamespaceNames.size(); ++i) {
      const auto which = static_cast<Namespace>(i);
      if (base_.Has(which) && !profile_.Has(which))
        Add(std::string("namespaces.") + kNamespaceNames[i], kNamespaceWalls[i]);
    }
    if (profile_.strength < base_.strength) {
      Add("strength", std::string("a flaw of the host's kernel is reachable: ") + NameOf(profile_.strength) +
                          " instead of " + NameOf(base_.strength));
    }
    if (profile_.seccomp.filter == "none")
      Add("seccomp.filter.none", "every system call reaches the kernel, and nothing records what was attempted");
    else if (base_.seccomp.filter == "strict" && profile_.seccomp.filter != "strict")
      Add("seccomp.filter", "programs may run from memory files, and memory may be writable and executable");
    for (const std::string& name : Minus(profile_.seccomp.allow, base_.seccomp.allow))
      Add("seccomp.allow." + name, "the system call " + name + " reaches the kernel, whatever its arguments");
    for (const std::string& name : Minus(base_.seccomp.deny, profile_.seccomp.deny))
      Add("seccomp.deny." + name, "the system call " + name + " is no longer refused");
    if (base_.landlock && !profile_.landlock)
      Add("landlock", "no second wall stands behind the read-only mounts, and nothing scopes signals");
    for (const std::string& name : Minus(profile_.capabilities, base_.capabilities))
      Add("capabilities." + name, "the workload keeps " + name + " in its user namespace");
    if (base_.no_new_privileges && !profile_.no_new_privileges)
      Add("no_new_privileges", "set-user-id programs would gain privileges");
  }

  void Files() {
    for (const std::string& path : Minus(profile_.system_paths, base_.system_paths))
      Add("system_paths." + path, "the host's " + path + " can be read");
    for (const std::string& path : Minus(profile_.etc_paths, base_.etc_paths))
      Add("etc_paths." + path, "the host's " + path + " can be read");
    for (const std::string& name : Minus(profile_.devices, base_.devices))
      Add("devices." + name, "/dev/" + name + " can be used");
    if (base_.proc.pids_only && !profile_.proc.pids_only) Add("proc.subset", "kernel-wide files of /proc can be read");
    if (!profile_.proc.pids_only) {
      for (const std::string& path : Minus(base_.proc.masked_files, profile_.proc.masked_files))
        Add("proc.masked_files." + path, "/proc/" + path + " is no longer covered");
      for (const std::string& path : Minus(base_.proc.masked_directories, profile_.proc.masked_directories))
        Add("proc.masked_directories." + path, "/proc/" + path + " is no longer covered");
    }
    for (const ProfileMount& mount : profile_.mounts) {
      const bool known = std::any_of(base_.mounts.begin(), base_.mounts.end(), [&](const ProfileMount& other) {
        return other.source == mount.source && other.target == mount.target && other.access >= mount.access;
      });
      if (!known) {
        Add("mounts." + mount.target,
            "the host's " + mount.source +
                (mount.access == Access::kReadWrite ? " can be read and changed" : " can be read"));
      }
    }
    if (profile_.workspace > base_.workspace)
      Add("workspace", "the source under test can be changed while it is tested");
    for (const std::string& path : Minus(profile_.writable_paths, base_.writable_paths))
      Add("writable_paths." + path, path + " can be written");
    if (profile_.project) {
      for (const AllowedPath& path : profile_.project->allowed_paths) {
        if (path.access == Access::kReadWrite)
          Add("project.allowed_paths." + path.path, "requests may write to the host's " + path.path);
      }
    }
    if (base_.project && !profile_.project) Add("project", "requests may ask for any path that is not sensitive");
  }

  void Rules() {
    for (const LimitField& field : kLimitFields) {
      const int64_t value = profile_.limits.*field.value, before = base_.limits.*field.value;
      if (IsWider(value, before)) {
        Add(std::string("limits.") + field.name, (value == kNoLimit ? "no limit" : "up to " + Amount(field, value)) +
                                                     " instead of " + Amount(field, before));
      }
    }
    if (profile_.network.mode > base_.network.mode)
      Add("network.mode", "the hosts listed can be reached, and data can be sent to them");
    for (const std::string& range : Minus(profile_.network.private_ranges, base_.network.private_ranges))
      Add("network.private_ranges." + range, "allowed names may lead to addresses of " + range);
    for (const uint16_t port : profile_.network.host_ports) {
      const auto& known = base_.network.host_ports;
      if (std::find(known.begin(), known.end(), port) == known.end())
        Add("network.host_ports." + std::to_string(port),
            "port " + std::to_string(port) + " of the host's loopback can be reached");
    }
    for (const std::string& name : Minus(profile_.network.credentials, base_.network.credentials))
      Add("network.credentials." + name, "requests inside are sent with the secret " + name);
    if (profile_.network.ask && !base_.network.ask)
      Add("network.ask", "the user of an attended run may allow further destinations");
    for (size_t kind = 0; kind < kEscalationKindNames.size(); ++kind) {
      const Escalation now = profile_.approvals.kinds[kind];
      if (now <= base_.approvals.kinds[kind]) continue;
      Add(std::string("approvals.") + kEscalationKindNames[kind],
          now == Escalation::kAllow ? "a program in a session gets more of it whenever it asks"
                                    : "a person may be asked to give a program in a session more of it");
    }
    for (const NetworkLimitField& field : kNetworkLimitFields) {
      const int64_t value = profile_.network.limits.*field.value, before = base_.network.limits.*field.value;
      if (before != 0 && (value == 0 || value > before))
        Add(std::string("network.limits.") + field.name,
            (value == 0 ? "no limit" : "up to " + std::to_string(value)) + " instead of " + std::to_string(before));
    }
    for (const std::string& word : Minus(profile_.ignored_writes, base_.ignored_writes))
      Add("ignored_writes." + word, "refused writes to paths with the component " + word + " are not counted");
    for (const ProbeRule& probe : profile_.probes) {
      const bool known = std::any_of(base_.probes.begin(), base_.probes.end(),
                                     [&](const ProbeRule& other) { return other.name() == probe.name(); });
      if (!known)
        Add("probes." + probe.name(), (probe.reason.empty() ? "refused writes below " + probe.write
                                                            : "refused calls with the reason " + probe.reason) +
                                          " are notices and not violations");
    }
    if (base_.on_violation == OnViolation::kFail && profile_.on_violation == OnViolation::kReport)
      Add("on_violation", "a violation is recorded but does not fail the check");
    if (profile_.start == Start::kZygote && base_.start != Start::kZygote)
      Add("start", "workloads may share the layout of their address space with each other and with their supervisors");
    for (const std::string& wall : Minus(profile_.allow_degraded, base_.allow_degraded))
      Add("allow_degraded." + wall, "a machine without " + wall + " is accepted");
  }

  const Profile& profile_;
  const Profile& base_;
  std::vector<Loss> losses_;
};

}  // namespace

std::vector<Loss> FindLosses(const Profile& profile, const Profile& base) { return Finder(profile, base).Find(); }

std::vector<Loss> FindLosses(const Profile& profile) {
  const Profile* base = FindBuiltIn(profile.built_in);
  CAISSON_CHECK(base != nullptr);
  return FindLosses(profile, *base);
}

}  // namespace caisson::policy
