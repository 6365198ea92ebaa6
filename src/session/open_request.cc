#include "session/open_request.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "base/utf8.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "session/json_bytes.h"
#include "session/manifest.h"
#include "session/stamp.h"
#include "session/tree_copy.h"
#include "verify/json_fields.h"

namespace caisson::session {

using nlohmann::json;

namespace {

struct TextField {
  const char* name;
  std::string OpenRequest::*value;
};
constexpr TextField kTextFields[] = {
    {"name", &OpenRequest::name},
    {"project", &OpenRequest::project},
    {"profile", &OpenRequest::profile},
    {"profiles", &OpenRequest::profiles},
    {"policy", &OpenRequest::policy},
    {"role", &OpenRequest::role},
    {"runtime", &OpenRequest::runtime},
    {"approver", &OpenRequest::approver},
    {"credentials_file", &OpenRequest::credentials_file},
    {"image", &OpenRequest::image},
    {"forked_from", &OpenRequest::forked_from},
    {"stamp", &OpenRequest::stamp},
};

struct LimitField {
  const char* name;
  std::optional<int64_t> verify::RequestedLimits::*value;
};
constexpr LimitField kLimits[] = {
    {"command_timeout_ms", &verify::RequestedLimits::command_timeout_ms},
    {"cpu_millis", &verify::RequestedLimits::cpu_millis},
    {"memory_bytes", &verify::RequestedLimits::memory_bytes},
    {"processes", &verify::RequestedLimits::processes},
    {"output_bytes", &verify::RequestedLimits::output_bytes},
    {"scratch_bytes", &verify::RequestedLimits::scratch_bytes},
    {"cpu_time_ms", &verify::RequestedLimits::cpu_time_ms},
    {"stack_bytes", &verify::RequestedLimits::stack_bytes},
};

constexpr size_t kMostItems = 4096;

Status ReadMounts(const json& list, std::vector<verify::Mount>& mounts) {
  CAISSON_TRY_VOID(verify::ExpectArray(list, "mounts", 0, kMostItems));
  for (const json& item : list) {
    verify::Mount mount;
    CAISSON_TRY_VOID(verify::ExpectObject(item, "mounts", {"source", "target", "access"}));
    CAISSON_TRY(mount.source, verify::ReadRequired(item, "mounts", "source", BytesFromJson));
    CAISSON_TRY(mount.target, verify::ReadRequired(item, "mounts", "target", verify::ReadStringWithoutNul));
    CAISSON_TRY(const int64_t access, verify::ReadRequired(item, "mounts", "access", verify::ReadInteger, 0,
                                                           int64_t{policy::kAccessNames.size()} - 1));
    mount.access = static_cast<policy::Access>(access);
    mounts.push_back(std::move(mount));
  }
  return {};
}

Status MakeDirectory(const SessionDirectory& directory, const char* name) {
  if (::mkdirat(directory.fd(), name, 0755) != 0 && errno != EEXIST)
    return Error::System(errno, "make " + directory.File(name));
  return {};
}

Result<policy::JudgedPath> OwnDirectory(const SessionDirectory& directory, const char* name) {
  policy::JudgedPath path;
  CAISSON_TRY(path.fd, linux_sys::OpenAt(directory.fd(), name, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  path.canonical = directory.File(name);
  path.is_directory = true;
  return path;
}

// The session's own files must not be part of what it shows.
Status RefuseOwnState(const std::string& project, const SessionDirectory& directory) {
  if (!policy::IsAtOrBelow(directory.path(), project)) return {};
  return Error::Denied(
      EscapeForTerminal(project) + ": contains the directory where sessions are kept (" + directory.root() +
      "); set CAISSON_SESSIONS to a directory outside of it, or open a session on " + "a directory further down");
}

Status TakeStampOf(int directory, AdmittedSession& admitted) {
  CAISSON_TRY(const UniqueFd readable, linux_sys::OpenAt(directory, ".", O_RDONLY | O_DIRECTORY));
  CAISSON_TRY(const Stamp stamp, TakeStamp(readable.get()));
  admitted.stamp = stamp.ToText();
  return {};
}

Status PrepareWorkspace(const OpenRequest& request, WorkspaceMode mode, const SessionDirectory& directory,
                        verify::Admission& admission, AdmittedSession& admitted) {
  policy::RunPlan& plan = admission.plan();
  if (mode == WorkspaceMode::kCopy) {
    policy::JudgedPath source;
    if (request.project.empty()) {
      CAISSON_TRY_VOID(MakeDirectory(directory, "base"));
      CAISSON_TRY(source, OwnDirectory(directory, "base"));
    } else {
      CAISSON_TRY(source, admission.OpenPath(request.project, policy::Access::kReadOnly));
      if (!source.is_directory) return Error::Invalid(EscapeForTerminal(request.project) + ": not a directory");
      CAISSON_TRY_VOID(RefuseOwnState(source.canonical, directory));
      admitted.project = source.canonical;
    }
    admitted.base = source.canonical;
    CAISSON_TRY_VOID(TakeStampOf(source.fd.get(), admitted));
    if (request.forked_from.empty()) {
      CAISSON_TRY(const UniqueFd tree, linux_sys::OpenAt(source.fd.get(), ".", O_RDONLY | O_DIRECTORY));
      CAISSON_TRY_VOID(RemoveTree(directory.fd(), "copy"));
      CAISSON_TRY_VOID(MakeDirectory(directory, "copy"));
      CAISSON_TRY(const UniqueFd copy, linux_sys::OpenAt(directory.fd(), "copy", O_RDONLY | O_DIRECTORY));
      CopyLimits limits;
      limits.most_bytes = admitted.disk_bytes;
      Status copied = CopyTree(tree.get(), copy.get(), limits);
      if (!copied) return std::move(copied).error().In("copy " + EscapeForTerminal(source.canonical));
      CAISSON_TRY_VOID(WriteManifest(copy.get(), directory.fd(), "manifest"));
    }
    CAISSON_TRY(policy::JudgedPath own, OwnDirectory(directory, "copy"));
    plan.workspace_mount = policy::PlannedMount{std::move(own), "/workspace", policy::Access::kReadWrite};
    return {};
  }
  if (mode == WorkspaceMode::kEmpty) {
    CAISSON_TRY_VOID(MakeDirectory(directory, "base"));
    CAISSON_TRY(policy::JudgedPath own, OwnDirectory(directory, "base"));
    admitted.base = own.canonical;
    plan.workspace_mount = policy::PlannedMount{std::move(own), "/workspace", policy::Access::kCopyOnWrite};
  } else {
    CAISSON_TRY_VOID(admission.AddMount(request.project, "/workspace", policy::Access::kCopyOnWrite, true));
    const policy::JudgedPath& source = plan.workspace_mount->source;
    CAISSON_TRY_VOID(RefuseOwnState(source.canonical, directory));
    admitted.project = admitted.base = source.canonical;
  }
  CAISSON_TRY_VOID(TakeStampOf(plan.workspace_mount->source.fd.get(), admitted));
  for (const char* name : {"layer", "layer/upper", "layer/work"}) CAISSON_TRY_VOID(MakeDirectory(directory, name));
  policy::PlannedLayer layer;
  CAISSON_TRY(layer.fd, linux_sys::OpenAt(directory.fd(), "layer", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  layer.path = directory.File("layer");
  plan.workspace_layer = std::move(layer);
  return {};
}

}  // namespace

json ToJson(const OpenRequest& request) {
  json document = {{"schema_version", 1}};
  for (const TextField& field : kTextFields) document[field.name] = BytesToJson(std::string_view(request.*field.value));
  document["workspace_mode"] = static_cast<int>(request.workspace_mode);
  document["idle_ms"] = request.idle_ms;
  document["ttl_ms"] = request.ttl_ms;
  if (request.disk_bytes) document["disk_bytes"] = *request.disk_bytes;
  document["from_command_line"] = request.from_command_line;
  document["attended"] = request.attended;
  document["mounts"] = json::array();
  for (const verify::Mount& mount : request.mounts) {
    document["mounts"].push_back({{"source", BytesToJson(std::string_view(mount.source))},
                                  {"target", mount.target},
                                  {"access", static_cast<int>(mount.access)}});
  }
  std::vector<std::string> names, values;
  for (const auto& [name, value] : request.env) {
    names.push_back(name);
    values.push_back(value);
  }
  document["env_names"] = BytesToJson(names);
  document["env_values"] = BytesToJson(values);
  document["labels"] = request.labels;
  document["approved_rules"] = BytesToJson(request.approved_rules);
  json limits = json::object();
  for (const LimitField& field : kLimits) {
    if (request.limits.*field.value) limits[field.name] = *(request.limits.*field.value);
  }
  document["limits"] = std::move(limits);
  document["network"] = {{"given", request.network.given},
                         {"ask", request.network.ask.value_or(false)},
                         {"allowlist", request.network.allowlist},
                         {"allow", BytesToJson(request.network.allow)},
                         {"deny", BytesToJson(request.network.deny)},
                         {"credentials", BytesToJson(request.network.credentials)},
                         {"host_ports", request.network.host_ports}};
  return document;
}

Result<OpenRequest> ReadOpenRequest(std::string_view text) {
  verify::JsonBounds bounds;
  bounds.max_bytes = size_t{8} << 20;
  CAISSON_TRY(const json document, verify::ReadJson(text, bounds));
  CAISSON_TRY_VOID(verify::ExpectSchemaVersion(document, "request"));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  OpenRequest request;
  for (const TextField& field : kTextFields)
    CAISSON_TRY_VOID(verify::ReadOptional(document, "request", field.name, request.*field.value, BytesFromJson));
  CAISSON_TRY(const int64_t mode, verify::ReadRequired(document, "request", "workspace_mode", verify::ReadInteger, 0,
                                                       int64_t{kWorkspaceModeNames.size()} - 1));
  request.workspace_mode = static_cast<WorkspaceMode>(mode);
  CAISSON_TRY(request.idle_ms, verify::ReadRequired(document, "request", "idle_ms", verify::ReadInteger, 1, kMost));
  CAISSON_TRY(request.ttl_ms, verify::ReadRequired(document, "request", "ttl_ms", verify::ReadInteger, 1, kMost));
  if (const json* disk = verify::FindMember(document, "disk_bytes")) {
    CAISSON_TRY(request.disk_bytes, verify::ReadInteger(*disk, "disk_bytes", 1, kMost));
  }
  const auto read_flag = [](const json& object, const char* name, bool& value) -> Status {
    CAISSON_TRY(const json* member, verify::RequireMember(object, "request", name));
    if (!member->is_boolean()) return verify::WrongTypeError(name, "a boolean", *member);
    value = member->get<bool>();
    return {};
  };
  CAISSON_TRY_VOID(read_flag(document, "from_command_line", request.from_command_line));
  if (verify::FindMember(document, "attended") != nullptr)
    CAISSON_TRY_VOID(read_flag(document, "attended", request.attended));
  CAISSON_TRY(const json* mounts, verify::RequireMember(document, "request", "mounts"));
  CAISSON_TRY_VOID(ReadMounts(*mounts, request.mounts));
  const auto read_list = [](const json& object, const char* name) {
    return verify::ReadRequired(object, "request", name, BytesListFromJson, kMostItems);
  };
  CAISSON_TRY(const std::vector<std::string> names, read_list(document, "env_names"));
  CAISSON_TRY(const std::vector<std::string> values, read_list(document, "env_values"));
  if (names.size() != values.size()) return verify::FieldError("env_values", "does not fit env_names");
  for (size_t i = 0; i < names.size(); ++i) request.env.emplace_back(names[i], values[i]);
  CAISSON_TRY(request.approved_rules, read_list(document, "approved_rules"));
  CAISSON_TRY(const json* labels, verify::RequireMember(document, "request", "labels"));
  CAISSON_TRY_VOID(verify::ExpectMap(*labels, "labels", 64));
  for (const auto& [key, value] : labels->items()) {
    CAISSON_TRY(request.labels[key], verify::ReadString(value, verify::PathOfMember("labels", key)));
  }
  CAISSON_TRY(const json* limits, verify::RequireMember(document, "request", "limits"));
  for (const LimitField& field : kLimits) {
    if (const json* limit = verify::FindMember(*limits, field.name)) {
      CAISSON_TRY(request.limits.*field.value, verify::ReadInteger(*limit, field.name, 0, kMost));
    }
  }
  CAISSON_TRY(const json* network, verify::RequireMember(document, "request", "network"));
  CAISSON_TRY_VOID(verify::ExpectObject(*network, "network",
                                        {"given", "ask", "allowlist", "allow", "deny", "credentials", "host_ports"}));
  bool ask = false;
  if (verify::FindMember(*network, "ask") != nullptr) CAISSON_TRY_VOID(read_flag(*network, "ask", ask));
  if (ask) request.network.ask = true;
  CAISSON_TRY_VOID(read_flag(*network, "given", request.network.given));
  CAISSON_TRY_VOID(read_flag(*network, "allowlist", request.network.allowlist));
  CAISSON_TRY(request.network.allow, read_list(*network, "allow"));
  CAISSON_TRY(request.network.deny, read_list(*network, "deny"));
  CAISSON_TRY(request.network.credentials, read_list(*network, "credentials"));
  CAISSON_TRY(const json* ports, verify::RequireMember(*network, "request", "host_ports"));
  if (!ports->is_array()) return verify::WrongTypeError("host_ports", "a list", *ports);
  for (const json& port : *ports) {
    CAISSON_TRY(const int64_t number, verify::ReadInteger(port, "host_ports", 1, 65535));
    request.network.host_ports.push_back(static_cast<uint16_t>(number));
  }
  return request;
}

namespace {

Result<verify::Authority> AuthorityOf(const OpenRequest& request, const verify::RequestedLimits& limits,
                                      const runtime::Runtimes& runtimes) {
  verify::Authority authority;
  authority.runtimes = Describe(runtimes);
  authority.runtime = request.runtime;
  CAISSON_TRY(authority.rules, policy::LoadRules(request.policy));
  if (!request.profiles.empty()) authority.profiles = policy::ProfileStore(request.profiles);
  authority.role = request.role;
  authority.approver = request.approver;
  authority.approved_rules = request.approved_rules;
  authority.credentials_file = request.credentials_file;
  if (request.from_command_line) {
    authority.profile = request.profile;  // may be a file
    authority.limits = limits;
    authority.network = request.network;
  }
  return authority;
}

Result<verify::Admission> OpenAdmission(const OpenRequest& request, const SessionDirectory& directory,
                                        const verify::Authority& authority, const verify::RequestedLimits& limits) {
  CAISSON_TRY(verify::Admission admission, verify::Admission::Open(authority, request.profile, directory.id()));
  if (!request.from_command_line) {
    CAISSON_TRY_VOID(admission.Tighten(limits));
    CAISSON_TRY_VOID(admission.AskForNetwork(request.network));
  }
  return admission;
}

verify::RequestedLimits LimitsOf(const OpenRequest& request) {
  verify::RequestedLimits limits = request.limits;
  limits.budget_ms = request.ttl_ms;
  return limits;
}

}  // namespace

Result<JudgedPolicy> JudgePolicy(const OpenRequest& request, const SessionDirectory& directory,
                                 const runtime::Runtimes& runtimes) {
  const verify::RequestedLimits limits = LimitsOf(request);
  CAISSON_TRY(const verify::Authority authority, AuthorityOf(request, limits, runtimes));
  CAISSON_TRY(verify::Admission admission, OpenAdmission(request, directory, authority, limits));
  JudgedPolicy judged;
  judged.digest = verify::PolicyDigest(admission.plan());
  judged.profile = std::move(admission.plan().profile);
  return judged;
}

Result<AdmittedSession> Admit(const OpenRequest& request, WorkspaceMode mode, const SessionDirectory& directory,
                              const runtime::Runtimes& runtimes, const OpenImage& open_image) {
  const verify::RequestedLimits limits = LimitsOf(request);
  CAISSON_TRY(verify::Authority authority, AuthorityOf(request, limits, runtimes));
  authority.open_image = open_image;
  CAISSON_TRY(verify::Admission admission, OpenAdmission(request, directory, authority, limits));
  AdmittedSession admitted;
  const int64_t most_disk = admission.plan().limits.scratch_bytes;
  admitted.disk_bytes = request.disk_bytes.value_or(most_disk);
  if (admitted.disk_bytes > most_disk && !(request.from_command_line && authority.rules.command_line_trusted)) {
    return Error::Denied("disk: " + FormatSize(admitted.disk_bytes) + " is above the profile's scratch_bytes of " +
                         FormatSize(most_disk));
  }
  CAISSON_TRY_VOID(admission.UseImage(request.image));
  for (const verify::Mount& mount : request.mounts)
    CAISSON_TRY_VOID(admission.AddMount(mount.source, mount.target, mount.access, request.from_command_line));
  CAISSON_TRY_VOID(PrepareWorkspace(request, mode, directory, admission, admitted));
  admission.Need(policy::Ability::kSessions, "a session");
  policy::RequestFacts facts;
  facts.source = request.project.empty() ? "command" : "path";
  facts.labels = request.labels;
  facts.language = "other";
  CAISSON_TRY_VOID(admission.Close(std::move(facts), request.from_command_line));
  if (!request.stamp.empty()) admitted.stamp = request.stamp;
  admitted.policy_digest = verify::PolicyDigest(admission.plan());
  admitted.plan = std::move(admission.plan());
  admitted.plan.attended = request.attended;
  return admitted;
}

}  // namespace caisson::session
