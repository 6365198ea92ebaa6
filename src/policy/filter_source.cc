#include "policy/filter_source.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>

namespace caisson::policy {

using nlohmann::json;

namespace {

std::set<std::string> NamesIn(const json& rules) {
  std::set<std::string> names;
  for (const json& rule : rules) {
    for (const json& name : rule["names"]) names.insert(name.get<std::string>());
  }
  return names;
}

// `rules` without those that name one of `names`.
json Without(const json& rules, const std::set<std::string>& names) {
  json rest = json::array();
  for (json rule : rules) {
    json kept = json::array();
    for (const json& name : rule["names"]) {
      if (names.count(name.get<std::string>()) == 0) kept.push_back(name);
    }
    rule["names"] = kept;
    if (!kept.empty()) rest.push_back(std::move(rule));
  }
  return rest;
}

void PutInFront(json& document, json rule) {
  if (rule["names"].empty()) return;
  json rules = Without(document["syscalls"], NamesIn(json::array({rule})));
  rules.insert(rules.begin(), std::move(rule));
  document["syscalls"] = std::move(rules);
}

}  // namespace

Result<json> FilterDocument(const SeccompRules& rules) {
  const std::string_view text = FilterText(rules.filter);
  if (text.empty()) return Error::Invalid("there is no filter named " + rules.filter);
  json document = json::parse(text);
  if (const auto extends = document.find("x-caisson-extends"); extends != document.end()) {
    const std::string base_file = extends->get<std::string>();
    json base = json::parse(FilterText(base_file.substr(0, base_file.rfind('.'))));
    json merged = document["syscalls"];
    for (json& rule : Without(base["syscalls"], NamesIn(document["syscalls"]))) merged.push_back(std::move(rule));
    base["syscalls"] = std::move(merged);
    document = std::move(base);
  }
  PutInFront(document,
             {{"names", rules.deny},
              {"action", "SCMP_ACT_NOTIFY"},
              {"comment", "Denied by the profile."},
              {"x-caisson",
               {{"do", "deny"}, {"class", "SyscallViolation"}, {"reason", "syscall.profile"}, {"errno", EPERM}}}});
  PutInFront(document, {{"names", rules.allow}, {"action", "SCMP_ACT_ALLOW"}, {"comment", "Allowed by the profile."}});
  return document;
}

}  // namespace caisson::policy
