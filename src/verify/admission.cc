#include "verify/admission.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "base/utf8.h"
#include "verify/digest.h"
#include "verify/result.h"
#include "verify/snapshot.h"

namespace caisson::verify {

using nlohmann::json;

namespace {

struct LimitField {
  const char* name;
  std::optional<int64_t> RequestedLimits::*requested;
  int64_t policy::Limits::*effective;
};

constexpr LimitField kLimitFields[] = {
    {"command_timeout_ms", &RequestedLimits::command_timeout_ms, &policy::Limits::command_timeout_ms},
    {"budget_ms", &RequestedLimits::budget_ms, &policy::Limits::budget_ms},
    {"cpu", &RequestedLimits::cpu_millis, &policy::Limits::cpu_millis},
    {"memory_bytes", &RequestedLimits::memory_bytes, &policy::Limits::memory_bytes},
    {"processes", &RequestedLimits::processes, &policy::Limits::processes},
    {"output_bytes", &RequestedLimits::output_bytes, &policy::Limits::output_bytes},
    {"scratch_bytes", &RequestedLimits::scratch_bytes, &policy::Limits::scratch_bytes},
};

Status Tighten(const RequestedLimits& requested, policy::Limits& limits) {
  for (const LimitField& field : kLimitFields) {
    const std::optional<int64_t>& value = requested.*field.requested;
    if (!value) continue;
    int64_t& current = limits.*field.effective;
    if (*value > current) {
      return Error::Denied(std::string("limits.") + field.name + ": " + std::to_string(*value) +
                           " is above the profile's " + std::to_string(current) +
                           "; a request may only tighten a limit");
    }
    current = *value;
  }
  return {};
}

Status RefuseMoreThanMachine(const policy::Limits& limits) {
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  if (limits.memory_bytes > memory) {
    return Error::Invalid("memory limit of " + FormatSize(limits.memory_bytes) + " is more than this machine's " +
                          FormatSize(memory));
  }
  if (limits.scratch_bytes > memory) {
    return Error::Invalid("scratch limit of " + FormatSize(limits.scratch_bytes) +
                          " is more than this machine's memory of " + FormatSize(memory));
  }
  return {};
}

Result<const policy::Profile*> ChooseProfile(const Request& request) {
  const std::string name = request.profile.empty() ? ModeName(request.mode) : request.profile;
  const policy::Profile* profile = policy::FindProfile(name);
  if (profile != nullptr) return profile;
  std::string known;
  for (const std::string& candidate : policy::ProfileNames()) known += (known.empty() ? "" : ", ") + candidate;
  return Error::Invalid("profile: there is none named " + EscapeForTerminal(name) + "; known: " + known);
}

Status AdmitSource(const Request& request, Admitted& admitted, std::vector<std::string>& names,
                   std::string& given_file) {
  if (request.source.archive)
    return Error::Denied("source.archive: archives are taken by the service only; give path or files");
  if (!request.source.path) {
    for (const SourceFile& file : request.source.files) {
      admitted.plan.workspace_files.push_back({file.name, file.bytes, 0644, policy::FileKind::kRegular});
      names.push_back(file.name);
    }
    if (names.size() == 1 && names[0].find('/') == std::string::npos) given_file = names[0];
    admitted.source_digest = DigestOf(admitted.plan.workspace_files);
    return {};
  }
  CAISSON_TRY(policy::JudgedPath source, policy::OpenJudged(*request.source.path));
  CAISSON_TRY(Snapshot snapshot, TakeSnapshot(source, SnapshotLimits{}));
  if (!source.is_directory) given_file = snapshot.names[0];
  names = std::move(snapshot.names);
  admitted.source_digest = snapshot.digest;
  admitted.plan.workspace_files = std::move(snapshot.files);
  if (!snapshot.complete)
    admitted.plan.workspace_mount = policy::PlannedMount{std::move(source), "/workspace", Access::kReadOnly};
  return {};
}

}  // namespace

Result<policy::Limits> EffectiveLimits(const policy::Profile& profile, const OperatorLimits& operator_limits) {
  policy::Limits limits = profile.limits;
  for (const LimitField& field : kLimitFields) {
    if (const std::optional<int64_t>& value = operator_limits.*field.requested) limits.*field.effective = *value;
  }
  CAISSON_TRY_VOID(RefuseMoreThanMachine(limits));
  return limits;
}

Result<Admitted> Admit(const Request& request, const OperatorLimits& operator_limits) {
  Admitted admitted;
  CAISSON_TRY(const policy::Profile* profile, ChooseProfile(request));
  admitted.plan.profile = *profile;
  CAISSON_TRY(admitted.plan.limits, EffectiveLimits(*profile, operator_limits));
  CAISSON_TRY_VOID(Tighten(request.limits, admitted.plan.limits));
  if (request.network.allowlist && !request.network.allow.empty()) {
    return Error::Denied("network: this runtime offers no network; mode allowlist with hosts needs one that does");
  }
  for (const Mount& mount : request.mounts) {
    if (mount.access == Access::kReadWrite) {
      return Error::Denied("mounts: " + EscapeForTerminal(mount.source) +
                           ": rw is not a request's to ask for; use cow, or caisson run -v");
    }
    CAISSON_TRY(policy::JudgedPath source, policy::OpenJudged(mount.source));
    admitted.plan.mounts.push_back({std::move(source), mount.target, mount.access});
  }
  std::vector<std::string> names;
  std::string given_file;
  CAISSON_TRY_VOID(AdmitSource(request, admitted, names, given_file));

  std::vector<Check> checks = request.checks;
  admitted.default_checks = checks.empty();
  if (admitted.default_checks) {
    Result<DefaultChecks> chosen = ChooseChecks(names, given_file);
    if (!chosen) return std::move(chosen).error().In(request.source.path.value_or("source"));
    checks = std::move(chosen->checks);
    admitted.skipped = std::move(chosen->skipped);
  }
  for (Check& check : checks) {
    policy::PlannedCommand command;
    command.name = std::move(check.name);
    command.tier = std::move(check.tier);
    command.argv = std::move(check.argv);
    command.env = std::move(check.env);
    if (!check.cwd.empty()) command.cwd = std::move(check.cwd);
    command.stdin_bytes = std::move(check.stdin_text);
    command.timeout_ms = std::min(check.timeout_ms.value_or(admitted.plan.limits.command_timeout_ms),
                                  admitted.plan.limits.command_timeout_ms);
    admitted.plan.commands.push_back(std::move(command));
  }
  admitted.policy_digest = PolicyDigest(admitted.plan);
  return admitted;
}

json DescribePlan(const policy::RunPlan& plan) {
  const policy::Profile& profile = plan.profile;
  const policy::Limits& limits = plan.limits;
  static constexpr const char* kAccessNames[] = {"ro", "cow", "rw"};
  json mounts = json::array(), commands = json::array(), environment = json::object();
  for (const policy::PlannedMount& mount : plan.mounts) {
    mounts.push_back({{"source", ReplaceInvalidUtf8(mount.source.canonical)},
                      {"target", mount.target},
                      {"access", kAccessNames[static_cast<int>(mount.access)]}});
  }
  for (const auto& [key, value] : profile.environment) environment[key] = value;
  for (const policy::PlannedCommand& command : plan.commands) {
    json argv = json::array();
    for (const std::string& argument : command.argv) argv.push_back(ReplaceInvalidUtf8(argument));
    commands.push_back({{"name", command.name},
                        {"tier", command.tier},
                        {"argv", std::move(argv)},
                        {"cwd", command.cwd},
                        {"timeout_ms", command.timeout_ms}});
  }
  json workspace = {{"access", kAccessNames[static_cast<int>(plan.workspace_access)]},
                    {"files", plan.workspace_files.size()}};
  if (plan.workspace_mount) {
    workspace["mounted_from"] = ReplaceInvalidUtf8(plan.workspace_mount->source.canonical);
    workspace["access"] = kAccessNames[static_cast<int>(plan.workspace_mount->access)];
  }
  return {{"runtime", "native"},
          {"profile", profile.name},
          {"seccomp", profile.seccomp},
          {"on_violation", profile.on_violation == policy::OnViolation::kFail ? "fail" : "report"},
          {"allow_degraded", profile.allow_degraded},
          {"limits",
           {{"command_timeout_ms", limits.command_timeout_ms},
            {"budget_ms", limits.budget_ms},
            {"cpu", static_cast<double>(limits.cpu_millis) / 1000},
            {"memory_bytes", limits.memory_bytes},
            {"processes", limits.processes},
            {"output_bytes", limits.output_bytes},
            {"scratch_bytes", limits.scratch_bytes},
            {"scratch_inodes", limits.scratch_inodes}}},
          {"network", {{"mode", "none"}}},
          {"workspace", std::move(workspace)},
          {"mounts", std::move(mounts)},
          {"host_etc", profile.etc_paths},
          {"masked_proc",
           {{"files", profile.masked_proc_files},
            {"directories", profile.masked_proc_directories},
            {"pids_only", profile.proc_pids_only}}},
          {"environment", std::move(environment)},
          {"ignored_writes", profile.ignored_writes},
          {"commands", std::move(commands)}};
}

std::string PolicyDigest(const policy::RunPlan& plan) {
  json policy = DescribePlan(plan);
  policy.erase("commands");
  policy["workspace"].erase("files");
  policy["workspace"].erase("mounted_from");
  return Sha256Hex(policy.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace caisson::verify
