// Typed access to a policy file. Every fault gives its place, and the fault of a misspelt key suggests the right one.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/syntax.h"
#include "policy/yaml_document.h"

namespace caisson::policy {

struct YamlKey {
  std::string_view name;
  std::function<Status(const YamlNode&)> read;
};

class YamlFields {
 public:
  explicit YamlFields(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  Error At(const YamlNode& node, const std::string& what) const { return FaultAt(file_, node, what); }

  // Hands each value to its key's reader, in the order of the file.
  Status Map(const YamlNode& node, std::span<const YamlKey> keys) const;
  Error UnknownKey(const YamlNode& name, std::span<const std::string_view> known) const;

  Status Items(const YamlNode& node, const std::function<Status(const YamlNode&)>& read) const;

  Result<std::string> Text(const YamlNode& node) const;
  // A text in which `check` finds no fault.
  Status Checked(const YamlNode& node, std::string& text, const std::function<Fault(const std::string&)>& check) const;
  Status Truth(const YamlNode& node, bool& value) const;
  Result<size_t> Choice(const YamlNode& node, std::span<const char* const> choices) const;
  template <typename Enum>
  Status Choose(const YamlNode& node, std::span<const char* const> choices, Enum& value) const {
    CAISSON_TRY(const size_t index, Choice(node, choices));
    value = static_cast<Enum>(index);
    return {};
  }
  // Refuses a text that occurs twice.
  Status Texts(const YamlNode& node, std::vector<std::string>& list,
               const std::function<Fault(const std::string&)>& check) const;
  Status Choices(const YamlNode& node, std::vector<std::string>& list, std::span<const char* const> choices) const;
  // Accepts the only existing version.
  Status Version(const YamlNode& node) const;

 private:
  std::string file_;
};

}  // namespace caisson::policy
