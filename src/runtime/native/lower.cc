#include "runtime/native/lower.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "linux/syscall_names.h"
#include "policy/losses.h"

namespace caisson::runtime::native {

namespace {

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
  return {std::move(mount.source.fd), std::move(mount.source.canonical), std::move(mount.target), Lower(mount.access)};
}

std::vector<std::string> Environment(const policy::Profile& profile, const policy::PlannedCommand& command) {
  std::vector<std::pair<std::string, std::string>> merged = profile.environment;
  for (const auto& [key, value] : command.env) {
    bool replaced = false;
    for (auto& [known, current] : merged) {
      if (known == key) {
        current = value;
        replaced = true;
      }
    }
    if (!replaced) merged.emplace_back(key, value);
  }
  std::vector<std::string> lines;
  lines.reserve(merged.size());
  for (auto& [key, value] : merged) lines.push_back(std::move(key.append("=").append(value)));
  return lines;
}

std::vector<int32_t> Numbers(const std::vector<std::string>& names) {
  std::vector<int32_t> numbers;
  for (const std::string& name : names) {
    numbers.push_back(linux_sys::SyscallNumber(name));
    CAISSON_CHECK(numbers.back() >= 0);  // the reader of profiles knows the same table
  }
  return numbers;
}

bool Lists(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

Result<LoweredPlan> Lower(policy::RunPlan plan) {
  const policy::Profile& profile = plan.profile;
  LoweredPlan lowered_plan;
  // SECURITY: what the spec cannot spell is refused here; a profile never runs with a wall it did not get.
  for (const policy::Loss& loss : policy::FindLosses(profile)) {
    if (!loss.can_run) {
      return Error::Denied("profile " + profile.name + ", " + loss.wall +
                           ": the native runtime does not run without it (" + loss.what + ")");
    }
    lowered_plan.given_up.push_back(loss.wall + ": given up by the profile; " + loss.what);
  }
  sandbox::Spec& spec = lowered_plan.spec;
  spec.seccomp = sandbox::FindSeccompProgram(profile.seccomp.filter.c_str());
  if (spec.seccomp == nullptr)
    return Error::Invalid("profile " + profile.name + ": no seccomp filter named " + profile.seccomp.filter);
  // Only needed, and only there, for profiles that accept watched limits.
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
                 plan.limits.output_bytes, plan.limits.scratch_bytes, plan.limits.scratch_inodes};
  spec.etc_paths = plan.profile.etc_paths;
  spec.masked_files = plan.profile.proc.masked_files;
  spec.masked_directories = plan.profile.proc.masked_directories;
  spec.proc_pids_only = plan.profile.proc.pids_only;
  spec.allow_watched_limits = plan.profile.Allows("cgroup");
  spec.allow_no_landlock = plan.profile.Allows("landlock");
  spec.ignored_write_components = plan.profile.ignored_writes;
  spec.workspace_files_writable = plan.workspace_access != policy::Access::kReadOnly;
  for (policy::PlannedFile& file : plan.workspace_files) {
    spec.workspace_files.push_back({std::move(file.path), std::move(file.bytes), file.mode, Lower(file.kind)});
  }
  if (plan.workspace_mount) spec.workspace = Lower(*std::move(plan.workspace_mount));
  for (policy::PlannedMount& mount : plan.mounts) spec.mounts.push_back(Lower(std::move(mount)));
  for (policy::PlannedCommand& command : plan.commands) {
    sandbox::Command lowered;
    lowered.env = Environment(plan.profile, command);
    lowered.argv = std::move(command.argv);
    lowered.cwd = std::move(command.cwd);
    lowered.stdin_bytes = std::move(command.stdin_bytes);
    spec.commands.push_back(std::move(lowered));
  }
  spec.stdio = plan.stdio == policy::Stdio::kCapture       ? sandbox::Stdio::kCapture
               : plan.stdio == policy::Stdio::kPassThrough ? sandbox::Stdio::kPassThrough
                                                           : sandbox::Stdio::kTerminal;
  return lowered_plan;
}

IsolationReport Describe(const sandbox::Isolation& applied, const std::vector<std::string>& given_up) {
  IsolationReport report = {"native",
                            applied.namespaces,
                            applied.seccomp_profile,
                            applied.seccomp_sha256,
                            applied.landlock_abi,
                            sandbox::DriverName(applied.cgroup_driver),
                            int64_t{applied.host_uid},
                            applied.degraded};
  report.start = policy::kStartNames[static_cast<size_t>(applied.start)];
  report.degraded.insert(report.degraded.end(), given_up.begin(), given_up.end());
  return report;
}

}  // namespace caisson::runtime::native
