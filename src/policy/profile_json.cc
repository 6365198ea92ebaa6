#include "policy/profile_json.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "policy/syntax.h"

namespace caisson::policy {

using nlohmann::ordered_json;

namespace {

// JSON is also YAML, except for the characters that JSON leaves unescaped and our files may not contain.
std::string Flow(const ordered_json& value) {
  const std::string json = value.dump();
  std::string yaml;
  for (std::string_view rest = json; !rest.empty();) {
    const DecodedCodePoint next = DecodeUtf8(rest);
    const std::string_view character = rest.substr(0, next.length);
    if (EscapeForTerminal(character) == character) {
      yaml += character;
    } else {
      char escape[16];
      std::snprintf(escape, sizeof(escape), "\\u%04x",
                    static_cast<unsigned>(next.code_point));  // all are below U+10000
      yaml += escape;
    }
    rest.remove_prefix(next.length);
  }
  return yaml;
}

// The name of a variable may be one that some YAML readers take for a value.
std::string Key(const std::string& key) {
  const std::string word = ToLowerAscii(key);
  for (const char* value : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (word == value) return "\"" + key + "\"";
  }
  return key;
}

void WriteYaml(const ordered_json& value, int indent, std::string& out) {
  for (const auto& [key, member] : value.items()) {
    out.append(static_cast<size_t>(indent), ' ').append(Key(key)).append(":");
    const bool nested_list = member.is_array() && !member.empty() && member.front().is_object();
    if (member.is_object() && !member.empty()) {
      out += "\n";
      WriteYaml(member, indent + 2, out);
    } else if (nested_list) {
      out += "\n";
      for (const ordered_json& item : member)
        out.append(static_cast<size_t>(indent) + 2, ' ').append("- " + Flow(item) + "\n");
    } else {
      out += " " + Flow(member) + "\n";
    }
  }
}

void CompareAt(const std::string& path, const ordered_json* left, const ordered_json* right,
               std::vector<Difference>& differences) {
  if (left != nullptr && right != nullptr && *left == *right) return;
  const bool objects = (left == nullptr || left->is_object()) && (right == nullptr || right->is_object());
  if (!objects) {
    differences.push_back(
        {path, left == nullptr ? "(absent)" : left->dump(), right == nullptr ? "(absent)" : right->dump()});
    return;
  }
  const auto member = [](const ordered_json* object, const std::string& key) -> const ordered_json* {
    if (object == nullptr) return nullptr;
    const auto found = object->find(key);
    return found == object->end() ? nullptr : &*found;
  };
  for (const ordered_json* side : {left, right}) {
    if (side == nullptr) continue;
    for (const auto& item : side->items()) {
      if (side == right && member(left, item.key()) != nullptr) continue;  // seen from the left
      CompareAt(path.empty() ? item.key() : path + "." + item.key(), member(left, item.key()),
                member(right, item.key()), differences);
    }
  }
}

}  // namespace

ordered_json ToJson(const Limits& limits) {
  ordered_json document;
  for (const LimitField& field : kLimitFields) {
    const int64_t value = limits.*field.value;
    if (field.optional && value == kNoLimit) continue;
    if (field.unit == LimitUnit::kMilliCpus)
      document[field.name] = static_cast<double>(value) / 1000;
    else
      document[field.name] = value;
  }
  return document;
}

ordered_json ToJson(const Profile& profile) {
  ordered_json namespaces = ordered_json::array();
  for (size_t i = 0; i < kNamespaceNames.size(); ++i) {
    if (profile.Has(static_cast<Namespace>(i))) namespaces.push_back(kNamespaceNames[i]);
  }
  ordered_json mounts = ordered_json::array();
  for (const ProfileMount& mount : profile.mounts) {
    mounts.push_back({{"source", mount.source},
                      {"target", mount.target},
                      {"access", kAccessNames[static_cast<size_t>(mount.access)]}});
  }
  ordered_json probes = ordered_json::array();
  for (const ProbeRule& probe : profile.probes)
    probes.push_back({{probe.reason.empty() ? "write" : "reason", probe.name()}, {"why", probe.why}});
  ordered_json environment = ordered_json::object();
  for (const auto& [name, value] : profile.environment) environment[name] = value;
  ordered_json hosts = ordered_json::object();
  for (const auto& [name, address] : profile.network.hosts) hosts[name] = address;
  ordered_json quotas = ordered_json::object();
  for (const NetworkLimitField& field : kNetworkLimitFields) {
    const int64_t limit = profile.network.limits.*field.value;
    quotas[field.name] = limit == 0 ? ordered_json("none") : ordered_json(limit);
  }
  ordered_json approvals = ordered_json::object();
  for (size_t kind = 0; kind < kEscalationKindNames.size(); ++kind)
    approvals[kEscalationKindNames[kind]] = kEscalationNames[static_cast<size_t>(profile.approvals.kinds[kind])];
  approvals["wait_ms"] = profile.approvals.wait_ms;
  ordered_json document = {
      {"version", 1},
      {"name", profile.name},
      {"extends", profile.built_in},
      {"description", profile.description},
      {"strength", NameOf(profile.strength)},
      {"namespaces", std::move(namespaces)},
      {"system_paths", profile.system_paths},
      {"etc_paths", profile.etc_paths},
      {"devices", profile.devices},
      {"proc",
       {{"subset", profile.proc.pids_only ? "pids" : "all"},
        {"masked_files", profile.proc.masked_files},
        {"masked_directories", profile.proc.masked_directories}}},
      {"mounts", std::move(mounts)},
      {"workspace", kAccessNames[static_cast<size_t>(profile.workspace)]},
      {"writable_paths", profile.writable_paths},
      {"seccomp",
       {{"filter", profile.seccomp.filter}, {"allow", profile.seccomp.allow}, {"deny", profile.seccomp.deny}}},
      {"landlock", profile.landlock},
      {"capabilities", profile.capabilities},
      {"no_new_privileges", profile.no_new_privileges},
      {"limits", ToJson(profile.limits)},
      {"network",
       {{"mode", kNetworkModeNames[static_cast<size_t>(profile.network.mode)]},
        {"allow", profile.network.allow},
        {"deny", profile.network.deny},
        {"pool", profile.network.pool},
        {"private_ranges", profile.network.private_ranges},
        {"hosts", std::move(hosts)},
        {"host_ports", profile.network.host_ports},
        {"credentials", profile.network.credentials},
        {"ask", profile.network.ask},
        {"limits", std::move(quotas)}}},
      {"approvals", std::move(approvals)},
      {"environment", std::move(environment)},
      {"ignored_writes", profile.ignored_writes},
      {"probes", std::move(probes)},
      {"on_violation", profile.on_violation == OnViolation::kFail ? "fail" : "report"},
      {"start", kStartNames[static_cast<size_t>(profile.start)]},
      {"allow_degraded", profile.allow_degraded},
  };
  if (profile.name == profile.built_in) document.erase("extends");
  if (profile.project) {
    ordered_json allowed = ordered_json::array();
    for (const AllowedPath& path : profile.project->allowed_paths)
      allowed.push_back({{"path", path.path}, {"access", kAccessNames[static_cast<size_t>(path.access)]}});
    document["project"] = {{"root_path", profile.project->root_path},
                           {"allowed_paths", std::move(allowed)},
                           {"denied_paths", profile.project->denied_paths}};
  }
  return document;
}

std::string ToYaml(const Profile& profile) {
  ordered_json document = ToJson(profile);
  // Variables are merged, so variables of the root that this profile removed must be removed explicitly.
  ordered_json& environment = document["environment"];
  if (const Profile* root = FindBuiltIn(profile.built_in)) {
    for (const auto& [name, value] : root->environment) {
      if (!environment.contains(name)) environment[name] = nullptr;
    }
  }
  std::string text;
  WriteYaml(document, 0, text);
  return text;
}

std::vector<Difference> Compare(const ordered_json& left, const ordered_json& right) {
  std::vector<Difference> differences;
  CompareAt("", &left, &right, differences);
  return differences;
}

}  // namespace caisson::policy
