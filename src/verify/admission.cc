#include "verify/admission.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "base/utf8.h"
#include "policy/filter_source.h"
#include "policy/profile_json.h"
#include "verify/digest.h"
#include "verify/result.h"
#include "verify/snapshot.h"

namespace caisson::verify {

using nlohmann::json;
using nlohmann::ordered_json;
using policy::Ask;

namespace {

struct RequestedField {
  const char* name;  // of policy::kLimitFields
  std::optional<int64_t> RequestedLimits::*value;
};

constexpr RequestedField kRequestedFields[] = {
    {"command_timeout_ms", &RequestedLimits::command_timeout_ms},
    {"budget_ms", &RequestedLimits::budget_ms},
    {"cpu", &RequestedLimits::cpu_millis},
    {"memory_bytes", &RequestedLimits::memory_bytes},
    {"processes", &RequestedLimits::processes},
    {"output_bytes", &RequestedLimits::output_bytes},
    {"scratch_bytes", &RequestedLimits::scratch_bytes},
};

const policy::LimitField& FieldNamed(std::string_view name) {
  return *std::find_if(policy::kLimitFields.begin(), policy::kLimitFields.end(),
                       [name](const policy::LimitField& field) { return field.name == name; });
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

Status AdmitSource(const Request& request, Admission& admission, Admitted& admitted, std::vector<std::string>& names,
                   std::string& given_file) {
  policy::RunPlan& plan = admission.plan();
  if (request.source.archive) {
    if (!request.source.unpacked)
      return Error::Denied("source.archive: there is no store to take it from; give one, or give path or files");
    plan.workspace_files = *request.source.unpacked;
    for (const policy::PlannedFile& file : plan.workspace_files) {
      if (file.kind == policy::FileKind::kRegular) names.push_back(file.path);
    }
    admitted.source_digest = DigestOf(plan.workspace_files);
    return {};
  }
  if (!request.source.path) {
    for (const SourceFile& file : request.source.files) {
      plan.workspace_files.push_back({file.name, file.bytes, 0644, policy::FileKind::kRegular});
      names.push_back(file.name);
    }
    if (names.size() == 1 && names[0].find('/') == std::string::npos) given_file = names[0];
    admitted.source_digest = DigestOf(plan.workspace_files);
    return {};
  }
  CAISSON_TRY(policy::JudgedPath source, admission.OpenPath(*request.source.path, plan.workspace_access));
  CAISSON_TRY(Snapshot snapshot, TakeSnapshot(source, SnapshotLimits{}));
  if (!source.is_directory) given_file = snapshot.names[0];
  names = std::move(snapshot.names);
  admitted.source_digest = snapshot.digest;
  plan.workspace_files = std::move(snapshot.files);
  if (!snapshot.complete)
    plan.workspace_mount = policy::PlannedMount{std::move(source), "/workspace", plan.workspace_access};
  return {};
}

// Lists of words are sets: the order they are written in changes nothing.
void SortWords(json& value) {
  if (value.is_array() && std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_string(); }))
    std::sort(value.begin(), value.end());
  for (json& member : value) {
    if (member.is_structured()) SortWords(member);
  }
}

policy::RequestFacts FactsOf(const Request& request, const policy::RunPlan& plan, bool default_checks) {
  policy::RequestFacts facts;
  facts.source = request.source.archive ? "archive" : request.source.path ? "path" : "files";
  facts.labels = request.labels;
  facts.language = default_checks ? "python" : "other";
  for (const policy::PlannedCommand& command : plan.commands) {
    if (policy::IsInstallStep(command.tier, command.argv)) facts.asks.insert(Ask::kInstall);
    if (facts.language == "other") facts.language = policy::LanguageOf(command.argv);
  }
  return facts;
}

}  // namespace

Result<Admission> Admission::Open(const Authority& authority, const std::string& profile_name,
                                  const std::string& request_id) {
  Admission admission(authority);
  policy::RunPlan& plan = admission.plan_;
  CAISSON_TRY(plan.profile, authority.profile.empty() ? authority.profiles.Find(profile_name)
                                                      : authority.profiles.FindOrLoad(authority.profile));
  admission.grants_ = policy::Grants(authority.rules.overrides, authority.role, request_id, ::time(nullptr));
  plan.limits = plan.profile.limits;
  plan.workspace_access = plan.profile.workspace;
  CAISSON_TRY_VOID(admission.ApplyOperatorLimits());
  for (const std::string& name : admission.grants_.AllowedSyscalls()) {
    policy::SeccompRules& seccomp = plan.profile.seccomp;
    seccomp.deny.erase(std::remove(seccomp.deny.begin(), seccomp.deny.end(), name), seccomp.deny.end());
    if (std::find(seccomp.allow.begin(), seccomp.allow.end(), name) == seccomp.allow.end())
      seccomp.allow.push_back(name);
  }
  CAISSON_TRY_VOID(admission.AddProfileMounts());
  return admission;
}

Status Admission::ApplyOperatorLimits() {
  for (const RequestedField& requested : kRequestedFields) {
    const std::optional<int64_t>& value = authority_->limits.*requested.value;
    if (!value) continue;
    const policy::LimitField& field = FieldNamed(requested.name);
    int64_t& current = plan_.limits.*field.value;
    if (*value > current) {
      if (authority_->rules.command_line_trusted) {
        grants_.AddFromCommandLine(policy::RaiseLimit{&field, *value}, std::string("a flag for ") + field.name);
        own_asks_.insert(Ask::kOverride);
      }
      if (!grants_.MayRaise(field, *value)) {
        return Error::Denied(std::string(field.name) + ": " + std::to_string(*value) + " is above the profile's " +
                             std::to_string(current) + " and the policy " + authority_->rules.name +
                             " does not trust the command line; it needs an override of type raise_limit");
      }
    }
    current = *value;
  }
  return RefuseMoreThanMachine(plan_.limits);
}

Status Admission::Tighten(const RequestedLimits& limits) {
  for (const RequestedField& requested : kRequestedFields) {
    const std::optional<int64_t>& value = limits.*requested.value;
    if (!value) continue;
    const policy::LimitField& field = FieldNamed(requested.name);
    int64_t& current = plan_.limits.*field.value;
    if (*value > current) {
      if (!grants_.MayRaise(field, *value)) {
        return Error::Denied(std::string("limits.") + field.name + ": " + std::to_string(*value) +
                             " is above the profile's " + std::to_string(current) +
                             "; a request may only tighten a limit, unless an override raises it");
      }
      asks_.insert(Ask::kOverride);
    }
    current = *value;
  }
  return RefuseMoreThanMachine(plan_.limits);
}

Result<policy::JudgedPath> Admission::OpenPath(const std::string& path, Access access) {
  return policy::OpenJudged(path, access, {plan_.profile.project ? &*plan_.profile.project : nullptr, &grants_});
}

Status Admission::AddProfileMounts() {
  for (const policy::ProfileMount& mount : plan_.profile.mounts) {
    // Naming it in the profile allows it; what is sensitive needs its override all the same.
    const policy::ProjectPaths named{"/", {{mount.source, mount.access}}, {}};
    Result<policy::JudgedPath> source = policy::OpenJudged(mount.source, mount.access, {&named, &grants_});
    if (!source) return std::move(source).error().In("profile " + plan_.profile.name + ", mounts");
    plan_.mounts.push_back({*std::move(source), mount.target, mount.access});
  }
  return {};
}

Status Admission::AddMount(const std::string& source, const std::string& target, Access access,
                           bool from_command_line) {
  if (access == Access::kReadWrite) {
    asks_.insert(Ask::kWritableMount);
    if (from_command_line && authority_->rules.command_line_trusted && !plan_.profile.project) {
      // The grant is for what the path turns out to be; a project's rules are not the command line's to lift.
      CAISSON_TRY(const policy::JudgedPath judged, OpenPath(source, Access::kReadOnly));
      grants_.AddFromCommandLine(policy::WritePath{judged.canonical}, "a mount with access rw");
      own_asks_.insert({Ask::kOverride, Ask::kWritableMount});
    }
  }
  CAISSON_TRY(policy::JudgedPath judged, OpenPath(source, access));
  if (access == Access::kCopyOnWrite && !judged.is_directory)
    return Error::Invalid(EscapeForTerminal(source) + ": cow needs a directory");
  for (const policy::PlannedMount& mount : plan_.mounts) {
    if (mount.target == target) return Error::Invalid("two mounts have the target " + EscapeForTerminal(target));
  }
  if (target == "/workspace")
    plan_.workspace_mount = policy::PlannedMount{std::move(judged), target, access};
  else
    plan_.mounts.push_back({std::move(judged), target, access});
  return {};
}

Status Admission::Close(policy::RequestFacts facts, bool from_command_line) {
  if (from_command_line && authority_->rules.command_line_trusted)
    own_asks_.insert(facts.asks.begin(), facts.asks.end());
  facts.asks.insert(asks_.begin(), asks_.end());
  const bool others = std::any_of(grants_.used().begin(), grants_.used().end(),
                                  [](const policy::Override& one) { return one.id != policy::kCommandLineId; });
  if (!grants_.used().empty()) facts.asks.insert(Ask::kOverride);
  if (others) own_asks_.erase(Ask::kOverride);
  policy::DecisionInput input;
  input.rules = &authority_->rules;
  input.profile = &plan_.profile;
  input.facts = std::move(facts);
  input.role = authority_->role;
  input.overrides = grants_.used();
  input.approved_rules = authority_->approved_rules;
  input.own_asks = own_asks_;
  input.approver = authority_->approver.empty() ? "uid " + std::to_string(::getuid()) : authority_->approver;
  plan_.decision = policy::Decide(input);
  return policy::Refusal(plan_.decision, plan_.profile);
}

Result<Admitted> Admit(const Request& request, const Authority& authority, policy::Decision* decision) {
  Admitted admitted;
  const std::string profile = request.profile.empty() ? ModeName(request.mode) : request.profile;
  CAISSON_TRY(Admission admission, Admission::Open(authority, profile, request.request_id));
  CAISSON_TRY_VOID(admission.Tighten(request.limits));
  if (request.network.allowlist && !request.network.allow.empty()) {
    const std::vector<std::string>& allowed = admission.plan().profile.network.allow;
    for (const std::string& host : request.network.allow) {
      if (std::find(allowed.begin(), allowed.end(), host) == allowed.end() && !admission.grants().MayReach(host))
        return Error::Denied("network: " + host + " is allowed neither by the profile nor by an override");
    }
    return Error::Denied("network: this runtime offers no network; mode allowlist with hosts needs one that does");
  }
  for (const Mount& mount : request.mounts) {
    Status added = admission.AddMount(mount.source, mount.target, mount.access, false);
    if (!added) return std::move(added).error().In("mounts");
  }
  std::vector<std::string> names;
  std::string given_file;
  CAISSON_TRY_VOID(AdmitSource(request, admission, admitted, names, given_file));

  std::vector<Check> checks = request.checks;
  admitted.default_checks = checks.empty();
  if (admitted.default_checks) {
    Result<DefaultChecks> chosen = ChooseChecks(names, given_file);
    if (!chosen) return std::move(chosen).error().In(request.source.path.value_or("source"));
    checks = std::move(chosen->checks);
    admitted.skipped = std::move(chosen->skipped);
  }
  policy::RunPlan& plan = admission.plan();
  for (Check& check : checks) {
    policy::PlannedCommand command;
    command.name = std::move(check.name);
    command.tier = std::move(check.tier);
    command.argv = std::move(check.argv);
    command.env = std::move(check.env);
    if (!check.cwd.empty()) command.cwd = std::move(check.cwd);
    command.stdin_bytes = std::move(check.stdin_text);
    command.timeout_ms =
        std::min(check.timeout_ms.value_or(plan.limits.command_timeout_ms), plan.limits.command_timeout_ms);
    plan.commands.push_back(std::move(command));
  }
  Status judged = admission.Close(FactsOf(request, plan, admitted.default_checks), false);
  if (decision != nullptr) *decision = plan.decision;
  if (!judged) return std::move(judged).error();
  admitted.plan = std::move(plan);
  admitted.policy_digest = PolicyDigest(admitted.plan);
  return admitted;
}

ordered_json DescribePolicy(const policy::RunPlan& plan) {
  ordered_json policy = policy::ToJson(plan.profile);
  policy["limits"] = policy::ToJson(plan.limits);
  policy["workspace"] = policy::kAccessNames[static_cast<size_t>(plan.workspace_mount ? plan.workspace_mount->access
                                                                                      : plan.workspace_access)];
  ordered_json mounts = ordered_json::array();
  for (const policy::PlannedMount& mount : plan.mounts) {
    mounts.push_back({{"source", ReplaceInvalidUtf8(mount.source.canonical)},
                      {"target", mount.target},
                      {"access", policy::kAccessNames[static_cast<size_t>(mount.access)]}});
  }
  policy["mounts"] = std::move(mounts);
  return policy;
}

ordered_json DescribePlan(const policy::RunPlan& plan) {
  ordered_json commands = ordered_json::array();
  for (const policy::PlannedCommand& command : plan.commands) {
    ordered_json argv = ordered_json::array();
    for (const std::string& argument : command.argv) argv.push_back(ReplaceInvalidUtf8(argument));
    commands.push_back({{"name", command.name},
                        {"tier", command.tier},
                        {"argv", std::move(argv)},
                        {"cwd", command.cwd},
                        {"timeout_ms", command.timeout_ms}});
  }
  ordered_json workspace = {{"files", plan.workspace_files.size()}};
  if (plan.workspace_mount) workspace["mounted_from"] = ReplaceInvalidUtf8(plan.workspace_mount->source.canonical);
  ordered_json policy = DescribePolicy(plan);
  ordered_json limits = policy["limits"];
  return {{"runtime", "native"},
          {"profile", plan.profile.name},
          {"policy_digest", PolicyDigest(plan)},
          {"limits", std::move(limits)},
          {"policy", std::move(policy)},
          {"decision", policy::ToJson(plan.decision)},
          {"workspace", std::move(workspace)},
          {"commands", std::move(commands)}};
}

std::string PolicyDigest(const policy::RunPlan& plan) {
  json policy = DescribePolicy(plan);  // `json` sorts its keys
  // What it is called and what it came from changes nothing it enforces.
  for (const char* label : {"name", "extends", "description"}) policy.erase(label);
  SortWords(policy);
  std::string text = policy.dump(-1, ' ', false, json::error_handler_t::replace);
  // A filter that was edited is another policy under the same name. So is the one it may extend, or be replaced by
  // where processes have to be counted.
  const std::string& filter = plan.profile.seccomp.filter;
  for (const std::string& name : {filter, std::string("balanced"), filter + "-watched"})
    text.append(policy::FilterText(name));
  return Sha256Hex(text);
}

}  // namespace caisson::verify
