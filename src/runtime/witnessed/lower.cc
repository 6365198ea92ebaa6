#include "runtime/witnessed/lower.h"

#include <algorithm>

#include "base/check.h"
#include "linux/syscall_names.h"
#include "policy/losses.h"

namespace caisson::runtime::witnessed {

namespace {

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

sandbox::Access LowerAccess(policy::Access access) {
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

}  // namespace

Result<LoweredPlan> Lower(policy::RunPlan& plan, const policy::RuntimeDescription& runtime) {
  const policy::Profile& profile = plan.profile;
  LoweredPlan lowered;
  for (const policy::Loss& loss : policy::FindLosses(profile)) {
    if (runtime.NeedsWall(loss.wall)) {
      return Error::Denied("profile " + profile.name + ", " + loss.wall + ": the runtime " + runtime.name +
                           " does not run without it (" + loss.what + ")");
    }
    lowered.given_up.push_back(loss.wall + ": given up by the profile; " + loss.what);
  }
  if (profile.network.mode != policy::NetworkMode::kNone)
    return Error::Unsupported("network: the runtime " + runtime.name + " reaches no destination; use native");
  sandbox::Spec& spec = lowered.agent.spec;
  spec.seccomp = sandbox::FindSeccompProgram(profile.seccomp.filter.c_str());
  if (spec.seccomp == nullptr)
    return Error::Invalid("profile " + profile.name + ": no seccomp filter named " + profile.seccomp.filter);
  spec.seccomp_watched = sandbox::FindSeccompProgram((profile.seccomp.filter + "-watched").c_str());
  spec.allowed_calls = Numbers(profile.seccomp.allow);
  spec.denied_calls = Numbers(profile.seccomp.deny);
  spec.writable_tmp = Lists(profile.writable_paths, "/tmp");
  spec.writable_shm = Lists(profile.writable_paths, "/dev/shm");
  spec.landlock = profile.landlock;
  spec.allow_no_landlock = profile.Allows("landlock");
  spec.limits = {plan.limits.memory_bytes, plan.limits.processes,     plan.limits.cpu_millis,
                 plan.limits.output_bytes, plan.limits.scratch_bytes, plan.limits.scratch_inodes,
                 plan.limits.cpu_time_ms,  plan.limits.stack_bytes};
  spec.ignored_write_components = profile.ignored_writes;
  for (const policy::ProbeRule& probe : profile.probes) spec.probes.push_back({probe.reason, probe.write, probe.why});
  spec.workspace_files_writable = plan.workspace_access != policy::Access::kReadOnly;
  lowered.agent.workspace_is_mounted = plan.workspace_mount.has_value();
  if (plan.workspace_mount) lowered.agent.mounts.push_back({"/workspace", LowerAccess(plan.workspace_mount->access)});
  for (const policy::PlannedMount& mount : plan.mounts)
    lowered.agent.mounts.push_back({mount.target, LowerAccess(mount.access)});
  lowered.files = std::move(plan.workspace_files);
  lowered.environment = plan.profile.environment;
  return lowered;
}

sandbox::Command Lower(const Command& command, const Environment& environment) {
  Environment merged = environment;
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
  sandbox::Command lowered;
  lowered.argv = command.argv;
  for (auto& [key, value] : merged) lowered.env.push_back(std::move(key.append("=").append(value)));
  lowered.cwd = command.cwd;
  return lowered;
}

}  // namespace caisson::runtime::witnessed
