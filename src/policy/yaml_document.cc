#include "policy/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/units.h"
#include "base/utf8.h"

namespace caisson::policy {

namespace {

constexpr size_t kMaxDepth = 12;

struct Fault {
  int line, column;
  std::string what;
};

// Builds the tree from the parser's events; throws Fault, which never leaves this file.
class TreeBuilder : public YAML::EventHandler {
 public:
  YamlNode Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    Add(At(mark, YamlNode::Kind::kScalar));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Fault{mark.line + 1, mark.column + 1, "aliases (*name) are not allowed; write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    YamlNode node = At(mark, YamlNode::Kind::kScalar);
    node.quoted = tag == "!";
    node.text = value;
    Add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    YamlNode node;
    std::optional<YamlNode> key;
  };

  static YamlNode At(const YAML::Mark& mark, YamlNode::Kind kind) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }
  static void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor)
      throw Fault{mark.line + 1, mark.column + 1, "anchors (&name) are not allowed; write the value out"};
  }
  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      throw Fault{mark.line + 1, mark.column + 1, "tags (!name) are not allowed"};
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (levels_.size() == kMaxDepth) throw Fault{mark.line + 1, mark.column + 1, "nested too deeply"};
    levels_.push_back({At(mark, kind), std::nullopt});
  }

  void Close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    Add(std::move(node));
  }

  void Add(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::kList) {
      level.node.items.push_back(std::move(node));
    } else if (!level.key) {
      if (node.kind != YamlNode::Kind::kScalar) throw Fault{node.line, node.column, "a key must be a word"};
      if (level.node.Find(node.text) != nullptr)
        throw Fault{node.line, node.column, "\"" + EscapeForTerminal(node.text) + "\" is given twice"};
      level.key = std::move(node);
    } else {
      level.node.fields.emplace_back(*std::move(level.key), std::move(node));
      level.key.reset();
    }
  }

  YamlNode root_;
  std::vector<Level> levels_;
};

// A tab in front of a line's text is invisible and means something else to every reader.
std::optional<Fault> FindTab(std::string_view text) {
  int line = 1, column = 1;
  bool leading = true;
  for (const char c : text) {
    if (c == '\t' && leading) return Fault{line, column, "a tab in the indentation; use spaces"};
    if (c == '\n') {
      ++line;
      column = 0;
      leading = true;
    } else if (c != ' ') {
      leading = false;
    }
    ++column;
  }
  return std::nullopt;
}

Error Describe(const std::string& name, const Fault& fault) {
  return Error::Invalid(name + ":" + std::to_string(fault.line) + ":" + std::to_string(fault.column) + ": " +
                        fault.what);
}

}  // namespace

const YamlNode* YamlNode::Find(std::string_view key) const {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first.text == key; });
  return found == fields.end() ? nullptr : &found->second;
}

Error FaultAt(const std::string& name, const YamlNode& node, const std::string& what) {
  return Describe(name, {node.line, node.column, what});
}

Result<YamlNode> ReadYaml(std::string_view text, const std::string& name) {
  if (text.size() > kMaxYamlBytes)
    return Error::Invalid(name + ": larger than " + FormatSize(int64_t{kMaxYamlBytes}) + ", which no profile needs");
  if (!IsValidUtf8(text) || text.find('\0') != std::string_view::npos) return Error::Invalid(name + ": not UTF-8 text");
  if (const std::optional<Fault> tab = FindTab(text)) return Describe(name, *tab);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder;
    if (!parser.HandleNextDocument(builder)) return Error::Invalid(name + ":1:1: the file is empty");
    YamlNode root = builder.Take();
    TreeBuilder rest;
    if (parser.HandleNextDocument(rest)) return Error::Invalid(name + ": holds a second document; one is allowed");
    return root;
  } catch (const Fault& fault) {
    return Describe(name, fault);
  } catch (const YAML::Exception& error) {
    return Describe(name, {error.mark.line + 1, error.mark.column + 1, error.msg});
  }
}

}  // namespace caisson::policy
