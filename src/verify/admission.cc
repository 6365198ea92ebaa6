#include "verify/admission.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "base/utf8.h"
#include "policy/filter_source.h"
#include "policy/network_plan.h"
#include "policy/profile_json.h"
#include "policy/syntax.h"
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
    {"cpu_time_ms", &RequestedLimits::cpu_time_ms},
    {"stack_bytes", &RequestedLimits::stack_bytes},
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

// Lists of words are sets: their order has no meaning.
void SortWords(json& value) {
  if (value.is_array() && std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_string(); }))
    std::sort(value.begin(), value.end());
  for (json& member : value) {
    if (member.is_structured()) SortWords(member);
  }
}

template <typename List, typename Item>
bool Lists(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void Disconnect(policy::NetworkRules& network) {
  network.allow.clear();
  network.host_ports.clear();
  network.credentials.clear();
  network.ask = false;
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
  CAISSON_TRY_VOID(admission.ApplyOperatorNetwork());
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
    if (policy::IsWider(*value, current)) {
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

template <typename IsGranted>
bool Admission::GrantFromCommandLine(policy::Grant grant, const char* flag, IsGranted is_granted) {
  if (authority_->rules.command_line_trusted) {
    grants_.AddFromCommandLine(std::move(grant), flag);
    own_asks_.insert(Ask::kOverride);
  }
  return is_granted();
}

Error Admission::NeedsOverride(const std::string& what, const policy::Grant& grant) const {
  return Error::Denied(what + ": the profile does not allow it and the policy " + authority_->rules.name +
                       " does not trust the command line; it needs an override of type " + policy::KindOf(grant));
}

Status Admission::ApplyOperatorNetwork() {
  const Network& asked = authority_->network;
  if (!asked.given) return {};
  policy::NetworkRules& network = plan_.profile.network;
  if (!asked.allowlist) {
    network.mode = policy::NetworkMode::kNone;
    Disconnect(network);
    return {};
  }
  for (const std::string& entry : asked.allow) {
    if (policy::Covers(network, entry)) continue;
    const policy::AllowNetwork grant{entry};
    if (!GrantFromCommandLine(grant, "--allow-domain", [&] { return grants_.MayReach(entry); }))
      return NeedsOverride("--allow-domain " + entry, grant);
    network.allow.push_back(entry);
  }
  network.deny.insert(network.deny.end(), asked.deny.begin(), asked.deny.end());
  for (const uint16_t port : asked.host_ports) {
    if (Lists(network.host_ports, port)) continue;
    const policy::AllowHostPort grant{port};
    if (!GrantFromCommandLine(grant, "--host-port", [&] { return grants_.MayReachHostPort(port); }))
      return NeedsOverride("--host-port " + std::to_string(port), grant);
    network.host_ports.push_back(port);
  }
  for (const std::string& name : asked.credentials) {
    if (Lists(network.credentials, name)) continue;
    const policy::AllowCredential grant{name};
    if (!GrantFromCommandLine(grant, "--credential", [&] { return grants_.MayUseCredential(name); }))
      return NeedsOverride("--credential " + name, grant);
    network.credentials.push_back(name);
  }
  if (asked.ask) network.ask = *asked.ask;
  if (network.allow.empty() && network.host_ports.empty() && network.credentials.empty() && !network.ask)
    return Error::Invalid("--network allowlist: the profile lists no destination; give one with --allow-domain");
  network.mode = policy::NetworkMode::kAllowlist;
  asks_.insert(Ask::kNetwork);
  if (authority_->rules.command_line_trusted) own_asks_.insert(Ask::kNetwork);
  return {};
}

Status Admission::AskForNetwork(const Network& asked) {
  if (!asked.given) return {};
  policy::NetworkRules& network = plan_.profile.network;
  if (!asked.allowlist) {
    network.mode = policy::NetworkMode::kNone;
    Disconnect(network);
    return {};
  }
  for (const std::string& entry : asked.allow) {
    if (!policy::Covers(network, entry) && !grants_.MayReach(entry))
      return Error::Denied("network: " + entry + " is allowed neither by the profile nor by an override");
  }
  for (const std::string& name : asked.credentials) {
    if (!Lists(network.credentials, name) && !grants_.MayUseCredential(name))
      return Error::Denied("network.credentials: " + name + " is allowed neither by the profile nor by an override");
  }
  if (asked.ask && *asked.ask && !network.ask)
    return Error::Denied("network.ask: the profile does not let its user allow further destinations");
  // A destination that the request does not ask for is not needed, and so stays closed. The same holds for a secret.
  if (!asked.allow.empty()) network.allow = asked.allow;
  network.credentials = asked.credentials;
  if (asked.ask) network.ask = *asked.ask;
  network.deny.insert(network.deny.end(), asked.deny.begin(), asked.deny.end());
  if (network.allow.empty() && network.host_ports.empty() && network.credentials.empty() && !network.ask)
    return {};  // a list without hosts reaches nothing
  network.mode = policy::NetworkMode::kAllowlist;
  asks_.insert(Ask::kNetwork);
  return {};
}

Status Admission::Tighten(const RequestedLimits& limits) {
  for (const RequestedField& requested : kRequestedFields) {
    const std::optional<int64_t>& value = limits.*requested.value;
    if (!value) continue;
    const policy::LimitField& field = FieldNamed(requested.name);
    int64_t& current = plan_.limits.*field.value;
    if (policy::IsWider(*value, current)) {
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
    // Naming the path in the profile allows it; a sensitive path still needs its override.
    const policy::ProjectPaths named{"/", {{mount.source, mount.access}}, {}};
    Result<policy::JudgedPath> source = policy::OpenJudged(mount.source, mount.access, {&named, &grants_});
    if (!source) return std::move(source).error().In("profile " + plan_.profile.name + ", mounts");
    plan_.mounts.push_back({*std::move(source), mount.target, mount.access});
  }
  return {};
}

Status Admission::UseImage(const std::string& reference) {
  const bool from_command_line = !authority_->image.empty();
  const std::string& asked = from_command_line ? authority_->image : reference;
  if (asked.empty()) return {};
  if (!authority_->open_image) return Error::Denied("image: there is no image store here");
  Result<policy::PlannedImage> image = authority_->open_image(asked);
  if (!image) {
    Error error = std::move(image).error().In("image");
    if (error.kind == ErrorKind::kNotFound) error.kind = ErrorKind::kDenied;  // the request is well formed
    return error;
  }
  for (const std::string& path : image->host_paths) {
    Status shown = AddMount(path, path, Access::kReadOnly, from_command_line);
    if (!shown) return std::move(shown).error().In("image " + EscapeForTerminal(asked));
  }
  if (image->root) {
    Need(policy::Ability::kImages, "image " + EscapeForTerminal(asked));
    // Nothing of the host's is shown beside the image.
    plan_.profile.system_paths.clear();
    plan_.profile.etc_paths.clear();
  }
  plan_.image = *std::move(image);
  return {};
}

namespace {

// The top directory or file of the image that a mount at `target` would replace or change; empty: none.
std::string FindImageTree(const policy::RunPlan& plan, const std::string& target) {
  if (!plan.image || !plan.image->root) return "";
  for (const policy::RootEntry& entry : plan.image->root->entries) {
    const std::string path = "/" + entry.name;
    if (entry.kind != policy::RootEntryKind::kEmpty && policy::IsAtOrBelow(target, path)) return path;
  }
  return "";
}

}  // namespace

Status Admission::AddMount(const std::string& source, const std::string& target, Access access,
                           bool from_command_line) {
  if (access == Access::kReadWrite) {
    asks_.insert(Ask::kWritableMount);
    if (from_command_line && authority_->rules.command_line_trusted && !plan_.profile.project) {
      // The grant is for the path after resolution; the command line cannot lift the rules of a project.
      CAISSON_TRY(const policy::JudgedPath judged, OpenPath(source, Access::kReadOnly));
      grants_.AddFromCommandLine(policy::WritePath{judged.canonical}, "a mount with access rw");
      own_asks_.insert({Ask::kOverride, Ask::kWritableMount});
    }
  }
  CAISSON_TRY(policy::JudgedPath judged, OpenPath(source, access));
  if (access == Access::kCopyOnWrite && !judged.is_directory)
    return Error::Invalid(EscapeForTerminal(source) + ": cow needs a directory");
  const bool is_workspace = target == "/workspace";
  if ((is_workspace && plan_.workspace_mount) ||
      std::any_of(plan_.mounts.begin(), plan_.mounts.end(), [&](const auto& mount) { return mount.target == target; }))
    return Error::Invalid("two mounts have the target " + EscapeForTerminal(target) + ": leave one out");
  for (const std::string& path : plan_.profile.system_paths) {
    if (policy::IsAtOrBelow(target, path) || policy::IsAtOrBelow(path, target)) {
      return Error::Denied("the target " + EscapeForTerminal(target) + " would replace what the profile shows at " +
                           path + ": choose another target");
    }
  }
  if (const std::string tree = FindImageTree(plan_, target); !tree.empty()) {
    return Error::Denied("the target " + EscapeForTerminal(target) + " would replace what the image has at " +
                         EscapeForTerminal(tree) + ": choose another target");
  }
  if (is_workspace)
    plan_.workspace_mount = policy::PlannedMount{std::move(judged), target, access};
  else
    plan_.mounts.push_back({std::move(judged), target, access});
  return {};
}

// The operator who binds a secret to a host wants that host reached: the rule for it is implied. A deny rule still
// beats it.
Status Admission::PlanCredentials() {
  policy::NetworkRules& network = plan_.profile.network;
  if (network.mode != policy::NetworkMode::kAllowlist || network.credentials.empty()) return {};
  CAISSON_TRY(const std::vector<policy::Credential> known, policy::LoadCredentials(authority_->credentials_file));
  for (const std::string& name : network.credentials) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const policy::Credential& one) { return one.name == name; });
    if (found == known.end()) {
      return Error::Invalid(
          "credential " + name + ": not in " +
          (authority_->credentials_file.empty() ? policy::kCredentialsPath : authority_->credentials_file));
    }
    const std::string entry = "tls://" + found->host + ":" + std::to_string(found->port);
    if (!policy::Covers(network, entry)) network.allow.push_back(entry);
    policy::PlannedCredential planned;
    planned.bound = *found;
    plan_.credentials.push_back(std::move(planned));
  }
  return {};
}

Status Admission::Close(policy::RequestFacts facts, bool from_command_line) {
  // Sorted by depth, so that no mount covers another, regardless of the order of the request.
  const auto depth = [](const policy::PlannedMount& mount) {
    return std::count(mount.target.begin(), mount.target.end(), '/');
  };
  std::stable_sort(plan_.mounts.begin(), plan_.mounts.end(),
                   [&](const auto& one, const auto& other) { return depth(one) < depth(other); });
  CAISSON_TRY_VOID(PlanCredentials());
  if (!plan_.forwards.empty()) Need(policy::Ability::kEgress, "--forward");
  if (plan_.profile.network.mode == policy::NetworkMode::kAllowlist) {
    if (Result<policy::NetworkPlan> network = policy::MakeNetworkPlan(plan_.profile.network); !network)
      return std::move(network).error().In("network");
    Need(policy::Ability::kEgress, "network: mode allowlist");
  }
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
  input.limits = &plan_.limits;
  input.runtimes = authority_->runtimes;
  input.runtime = authority_->runtime;
  input.needs = needs_;
  input.role = authority_->role;
  input.overrides = grants_.used();
  input.approved_rules = authority_->approved_rules;
  input.own_asks = own_asks_;
  input.approver = authority_->approver.empty() ? "uid " + std::to_string(::getuid()) : authority_->approver;
  plan_.decision = policy::Decide(input);
  return policy::Refusal(plan_.decision);
}

Result<Admitted> Admit(const Request& request, const Authority& authority, policy::Decision* decision) {
  Admitted admitted;
  const std::string profile = request.profile.empty() ? ModeName(request.mode) : request.profile;
  CAISSON_TRY(Admission admission, Admission::Open(authority, profile, request.request_id));
  CAISSON_TRY_VOID(admission.UseImage(request.image));
  CAISSON_TRY_VOID(admission.Tighten(request.limits));
  CAISSON_TRY_VOID(admission.AskForNetwork(request.network));
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
  ordered_json forwards = ordered_json::array();
  for (const policy::PlannedForward& forward : plan.forwards)
    forwards.push_back({{"port", forward.port}, {"inside_port", forward.inside_port}});
  ordered_json credentials = ordered_json::array();
  for (const policy::PlannedCredential& one : plan.credentials) {
    credentials.push_back({{"name", one.bound.name},
                           {"host", one.bound.host},
                           {"port", one.bound.port},
                           {"path", one.bound.path},
                           {"header", one.bound.header},
                           {"environment", one.bound.environment}});
  }
  ordered_json workspace = {{"files", plan.workspace_files.size()}};
  if (plan.workspace_mount) workspace["mounted_from"] = ReplaceInvalidUtf8(plan.workspace_mount->source.canonical);
  ordered_json policy = DescribePolicy(plan);
  ordered_json limits = policy["limits"];
  ordered_json document = {{"runtime", plan.decision.runtime},      {"profile", plan.profile.name},
                           {"policy_digest", PolicyDigest(plan)},   {"limits", std::move(limits)},
                           {"policy", std::move(policy)},           {"decision", policy::ToJson(plan.decision)},
                           {"workspace", std::move(workspace)},     {"forwards", std::move(forwards)},
                           {"credentials", std::move(credentials)}, {"commands", std::move(commands)}};
  if (plan.image) document["image"] = ImageIdentity::Of(*plan.image).ToJson();
  return document;
}

std::string PolicyDigest(const policy::RunPlan& plan) {
  json policy = DescribePolicy(plan);  // `json` sorts its keys
  // The name and the origin of a profile change nothing that it enforces.
  for (const char* label : {"name", "extends", "description"}) policy.erase(label);
  SortWords(policy);
  std::string text = policy.dump(-1, ' ', false, json::error_handler_t::replace);
  // An edited filter is another policy under the same name. The same holds for the filter that it may extend, and for
  // the one that replaces it where processes have to be counted.
  const std::string& filter = plan.profile.seccomp.filter;
  for (const std::string& name : {filter, std::string("balanced"), filter + "-watched"})
    text.append(policy::FilterText(name));
  return Sha256Hex(text);
}

}  // namespace caisson::verify
