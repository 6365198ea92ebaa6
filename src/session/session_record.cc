#include "session/session_record.h"

#include <algorithm>
#include <limits>

#include "verify/json_fields.h"

namespace caisson::session {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

struct TextField {
  const char* name;
  std::string Record::*value;
  bool shown;
};
constexpr TextField kTextFields[] = {
    {"reason", &Record::reason, true},
    {"workspace_base", &Record::workspace_base, false},
    {"profile", &Record::profile, true},
    {"runtime", &Record::runtime, true},
    {"policy_digest", &Record::policy_digest, true},
    {"created_at", &Record::created_at, true},
    {"opened_at", &Record::opened_at, true},
    {"last_used_at", &Record::last_used_at, true},
    {"expires_at", &Record::expires_at, true},
    {"ended_at", &Record::ended_at, true},
    {"events_head", &Record::events_head, false},
    {"forked_from", &Record::forked_from, true},
    {"diff_digest", &Record::diff_digest, true},
};

struct NumberField {
  const char* name;
  int64_t Record::*value;
};
constexpr NumberField kNumberFields[] = {
    {"idle_ms", &Record::idle_ms},
    {"ttl_ms", &Record::ttl_ms},
    {"disk_bytes", &Record::disk_bytes},
    {"command_timeout_ms", &Record::command_timeout_ms},
    {"pid", &Record::pid},
    {"uid", &Record::uid},
    {"commands", &Record::commands},
};

ordered_json Common(const Record& record, bool all) {
  const auto text = [](const std::string& value) { return value.empty() ? ordered_json() : ordered_json(value); };
  ordered_json document;
  document["schema_version"] = 1;
  document["id"] = record.id;
  document["name"] = record.name;
  document["state"] = NameOf(record.state);
  document["workspace"] = text(record.workspace);
  document["workspace_mode"] = NameOf(record.workspace_mode);
  for (const TextField& field : kTextFields) {
    if (all || field.shown) document[field.name] = text(record.*field.value);
  }
  for (const NumberField& field : kNumberFields) document[field.name] = record.*field.value;
  document["network"] = {{"mode", record.network_mode}, {"allow", record.allow}};
  document["labels"] = record.labels;
  document["notices"] = record.notices;
  return document;
}

}  // namespace

ordered_json ToJson(const Record& record) {
  ordered_json document = Common(record, true);
  document["protocol"] = kProtocolVersion;
  document["stamp"] = record.stamp;
  return document;
}

ordered_json PublicJson(const Record& record) { return Common(record, false); }

Result<Record> ReadRecord(std::string_view text) {
  CAISSON_TRY(const json document, verify::ReadJson(text, {}));
  CAISSON_TRY_VOID(verify::ExpectSchemaVersion(document, "session"));
  Record record;
  CAISSON_TRY(const int64_t protocol,
              verify::ReadRequired(document, "session", "protocol", verify::ReadInteger, 0, 1000000));
  if (protocol != kProtocolVersion) {
    return Error::Unsupported("the session was opened by another version of caisson (protocol " +
                              std::to_string(protocol) + ", this one speaks " + std::to_string(kProtocolVersion) + ")");
  }
  CAISSON_TRY(record.id, verify::ReadRequired(document, "session", "id", verify::ReadString));
  CAISSON_TRY(record.name, verify::ReadRequired(document, "session", "name", verify::ReadString));
  const auto choice = [&](const char* name, const auto& names) -> Result<size_t> {
    CAISSON_TRY(const std::string word, verify::ReadRequired(document, "session", name, verify::ReadString));
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) return verify::FieldError(std::string("session.") + name, "has an unknown value");
    return static_cast<size_t>(found - names.begin());
  };
  CAISSON_TRY(const size_t state, choice("state", kStateNames));
  record.state = static_cast<State>(state);
  CAISSON_TRY(const size_t mode, choice("workspace_mode", kWorkspaceModeNames));
  record.workspace_mode = static_cast<WorkspaceMode>(mode);
  const auto read_text = [&](const char* name, std::string& value) -> Status {
    const json* member = verify::FindMember(document, name);
    if (member == nullptr || member->is_null()) return {};
    CAISSON_TRY(value, verify::ReadString(*member, std::string("session.") + name));
    return {};
  };
  CAISSON_TRY_VOID(read_text("workspace", record.workspace));
  for (const TextField& field : kTextFields) CAISSON_TRY_VOID(read_text(field.name, record.*field.value));
  for (const NumberField& field : kNumberFields) {
    CAISSON_TRY_VOID(verify::ReadOptional(document, "session", field.name, record.*field.value, verify::ReadInteger, 0,
                                          std::numeric_limits<int64_t>::max()));
  }
  const auto read_texts = [](const json& value, const std::string& path, std::vector<std::string>& items) -> Status {
    CAISSON_TRY_VOID(verify::ExpectArray(value, path, 0, 10000));
    for (const json& item : value) {
      CAISSON_TRY(std::string one, verify::ReadString(item, path));
      items.push_back(std::move(one));
    }
    return {};
  };
  if (const json* network = verify::FindMember(document, "network")) {
    CAISSON_TRY_VOID(verify::ExpectObject(*network, "network", {"mode", "allow"}));
    CAISSON_TRY(record.network_mode, verify::ReadRequired(*network, "network", "mode", verify::ReadString));
    CAISSON_TRY(const json* allow, verify::RequireMember(*network, "network", "allow"));
    CAISSON_TRY_VOID(read_texts(*allow, "network.allow", record.allow));
  }
  if (const json* notices = verify::FindMember(document, "notices"))
    CAISSON_TRY_VOID(read_texts(*notices, "notices", record.notices));
  if (const json* labels = verify::FindMember(document, "labels")) {
    CAISSON_TRY_VOID(verify::ExpectMap(*labels, "labels", 64));
    for (const auto& [key, value] : labels->items()) {
      CAISSON_TRY(record.labels[key], verify::ReadString(value, verify::PathOfMember("labels", key)));
    }
  }
  if (const json* stamp = verify::FindMember(document, "stamp")) record.stamp = *stamp;
  return record;
}

}  // namespace caisson::session
