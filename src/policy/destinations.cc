#include "policy/destinations.h"

#include <algorithm>

#include "base/words.h"
#include "policy/syntax.h"
#include "policy/yaml_document.h"
#include "policy/yaml_fields.h"

namespace caisson::policy {

Result<std::vector<DestinationClass>> ReadDestinations(std::string_view text, const std::string& file) {
  const YamlFields fields(file);
  CAISSON_TRY(const YamlNode document, ReadYaml(text, file));
  std::vector<DestinationClass> classes;
  const auto read_class = [&](const YamlField& field) -> Status {
    DestinationClass& one = classes.emplace_back();
    one.name = field.key.text;
    if (!IsWord(one.name, ":-", 64) || one.name.find(':') == std::string::npos)
      return fields.At(field.key, "is no name of a class, like packages:pypi");
    const YamlKey keys[] = {
        {"description",
         [&](const YamlNode& node) -> Status {
           CAISSON_TRY(one.description, fields.Text(node));
           return {};
         }},
        {"allow", [&](const YamlNode& node) { return fields.Texts(node, one.allow, FaultInAllowEntry); }},
    };
    CAISSON_TRY_VOID(fields.Map(field.value, keys));
    if (one.description.empty() || one.allow.empty()) return fields.At(field.key, "needs a description and hosts");
    return {};
  };
  std::string kind;
  const YamlKey keys[] = {
      {"version", [&](const YamlNode& node) { return fields.Version(node); }},
      {"kind",
       [&](const YamlNode& node) {
         return fields.Checked(node, kind, [](const std::string& word) {
           return word == "destinations" ? Fault() : Fault("must be destinations");
         });
       }},
      {"classes",
       [&](const YamlNode& node) -> Status {
         if (node.kind != YamlNode::Kind::kMap) return fields.At(node, "must be a map of classes");
         for (const YamlField& field : node.fields) CAISSON_TRY_VOID(read_class(field));
         return {};
       }},
  };
  CAISSON_TRY_VOID(fields.Map(document, keys));
  if (kind.empty() || classes.empty()) return fields.At(document, "needs kind and classes");
  return classes;
}

const DestinationClass* FindDestinationClass(std::string_view name) {
  const std::vector<DestinationClass>& all = BuiltInDestinations();
  const auto found =
      std::find_if(all.begin(), all.end(), [name](const DestinationClass& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<network::RuleText> ExpandDestinations(const std::vector<std::string>& entries) {
  std::vector<network::RuleText> rules;
  for (const std::string& entry : entries) {
    if (entry.compare(0, kClassPrefix.size(), kClassPrefix) != 0) {
      rules.push_back({entry, ""});
      continue;
    }
    const DestinationClass* found = FindDestinationClass(std::string_view(entry).substr(kClassPrefix.size()));
    if (found == nullptr) continue;
    for (const std::string& rule : found->allow) rules.push_back({rule, entry + " (" + rule + ")"});
  }
  return rules;
}

}  // namespace caisson::policy
