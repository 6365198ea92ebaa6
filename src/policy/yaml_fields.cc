#include "policy/yaml_fields.h"

#include <algorithm>

#include "base/words.h"

namespace caisson::policy {

namespace {

constexpr size_t kMaxItems = 512;

// Keys of earlier releases. `tier` means the stage of a check and nothing else.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {{"tier", "strength"}, {"tiers", "strengths"}};

template <typename Words>
std::string ListOf(const Words& words) {
  std::string list;
  for (const auto& word : words) list += (list.empty() ? "" : ", ") + std::string(word);
  return list;
}

}  // namespace

Status YamlFields::Map(const YamlNode& node, std::span<const YamlKey> keys) const {
  if (node.kind != YamlNode::Kind::kMap) return At(node, "expected keys and values here");
  for (const auto& field : node.fields) {
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const YamlKey& known) { return known.name == field.key.text; });
    if (key == keys.end()) {
      std::vector<std::string_view> known;
      for (const YamlKey& candidate : keys) known.push_back(candidate.name);
      return UnknownKey(field.key, known);
    }
    CAISSON_TRY_VOID(key->read(field.value));
  }
  return {};
}

Error YamlFields::UnknownKey(const YamlNode& name, std::span<const std::string_view> known) const {
  for (const auto& [old_name, new_name] : kRenamed) {
    if (name.text == old_name && std::find(known.begin(), known.end(), new_name) != known.end())
      return At(name, "the key " + Quoted(old_name) + " is now called " + Quoted(new_name));
  }
  const std::string_view meant = Nearest(name.text, known);
  return At(name, "unknown key " + Quoted(name.text) + "; " +
                      (meant.empty() ? "known keys are " + ListOf(known) : "did you mean " + Quoted(meant) + "?"));
}

Status YamlFields::Items(const YamlNode& node, const std::function<Status(const YamlNode&)>& read) const {
  if (node.kind != YamlNode::Kind::kList) return At(node, "expected a list");
  if (node.items.size() > kMaxItems) return At(node, "more than " + std::to_string(kMaxItems) + " items");
  for (const YamlNode& item : node.items) CAISSON_TRY_VOID(read(item));
  return {};
}

Result<std::string> YamlFields::Text(const YamlNode& node) const {
  if (node.kind != YamlNode::Kind::kScalar || node.IsNull()) return At(node, "expected a text");
  return node.text;
}

Status YamlFields::Checked(const YamlNode& node, std::string& text,
                           const std::function<Fault(const std::string&)>& check) const {
  CAISSON_TRY(std::string read, Text(node));
  if (const Fault fault = check(read)) return At(node, Quoted(read) + " " + *fault);
  text = std::move(read);
  return {};
}

Status YamlFields::Truth(const YamlNode& node, bool& value) const {
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted && (node.text == "true" || node.text == "false")) {
    value = node.text == "true";
    return {};
  }
  return At(node, "expected true or false");
}

Result<size_t> YamlFields::Choice(const YamlNode& node, std::span<const char* const> choices) const {
  CAISSON_TRY(const std::string word, Text(node));
  const auto found = std::find(choices.begin(), choices.end(), word);
  if (found == choices.end()) return At(node, Quoted(word) + " is not one of " + ListOf(choices));
  return static_cast<size_t>(found - choices.begin());
}

Status YamlFields::Texts(const YamlNode& node, std::vector<std::string>& list,
                         const std::function<Fault(const std::string&)>& check) const {
  std::vector<std::string> read;
  Status all = Items(node, [&](const YamlNode& item) -> Status {
    std::string text;
    CAISSON_TRY_VOID(Checked(item, text, check));
    if (std::find(read.begin(), read.end(), text) != read.end()) return At(item, Quoted(text) + " is listed twice");
    read.push_back(std::move(text));
    return {};
  });
  if (all) list = std::move(read);
  return all;
}

Status YamlFields::Choices(const YamlNode& node, std::vector<std::string>& list,
                           std::span<const char* const> choices) const {
  return Texts(node, list, [choices](const std::string& word) -> Fault {
    if (std::find(choices.begin(), choices.end(), word) != choices.end()) return std::nullopt;
    return "is not one of " + ListOf(choices);
  });
}

Status YamlFields::Version(const YamlNode& node) const {
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted && node.text == "1") return {};
  return At(node, "this program reads version 1");
}

}  // namespace caisson::policy
