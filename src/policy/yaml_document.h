// The subset of YAML that policy files may use: one document of maps, lists and scalars, each with its place in the
// text. The reader refuses anchors, aliases, tags, duplicate keys, tabs in front of a key, invisible characters and
// deep nesting: no sandbox description needs them, and each has been used to make a parser see something else than a
// person does.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::policy {

struct YamlField;

struct YamlNode {
  enum class Kind { kScalar, kList, kMap };
  Kind kind = Kind::kScalar;
  int line = 1, column = 1;  // counted from 1; columns in bytes
  bool quoted = false;       // scalars: in quotes, so never null, a number or a truth value
  std::string text;          // scalars
  std::vector<YamlNode> items;
  std::vector<YamlField> fields;  // in the order of the text

  const YamlNode* Find(std::string_view key) const;
  bool IsNull() const { return kind == Kind::kScalar && !quoted && (text.empty() || text == "null" || text == "~"); }
};

struct YamlField {
  YamlNode key;
  YamlNode value;
};

inline constexpr size_t kMaxYamlBytes = size_t{256} << 10;

// `name` stands in front of every message: "name:line:column: what is wrong".
Result<YamlNode> ReadYaml(std::string_view text, const std::string& name);

// kInvalid at the place of `node`.
Error FaultAt(const std::string& name, const YamlNode& node, const std::string& what);

}  // namespace caisson::policy
