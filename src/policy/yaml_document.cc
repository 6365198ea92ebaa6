#include "policy/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"

namespace caisson::policy {

namespace {

constexpr size_t kMaxDepth = 12;
constexpr size_t kMaxKeys = 1024;  // in one map; the search for duplicates is quadratic

struct Fault {
  int line, column;
  std::string what;
};

// Builds the tree from the parser's events; throws Fault, which never leaves this file.
class TreeBuilder : public YAML::EventHandler {
 public:
  YamlNode Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) throw Fault{mark.line + 1, mark.column + 1, "a second document begins here; one is allowed"};
    started_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    YamlNode node = At(mark, YamlNode::Kind::kScalar);
    // For an empty value yaml-cpp gives the place of the next token; a person looks for the key.
    if (!levels_.empty() && levels_.back().key && levels_.back().key->line != node.line) {
      node.line = levels_.back().key->line;
      node.column = levels_.back().key->column;
    }
    Add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Fault{mark.line + 1, mark.column + 1, "aliases (*name) are not allowed; write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (value.find('\0') != std::string::npos)
      throw Fault{mark.line + 1, mark.column + 1, "holds a NUL character, at which the kernel would cut it off"};
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
      if (level.node.fields.size() == kMaxKeys) throw Fault{node.line, node.column, "too many keys"};
      if (level.node.Find(node.text) != nullptr)
        throw Fault{node.line, node.column, Quoted(node.text) + " is given twice"};
      level.key = std::move(node);
    } else {
      level.node.fields.push_back({*std::move(level.key), std::move(node)});
      level.key.reset();
    }
  }

  bool started_ = false;
  YamlNode root_;
  std::vector<Level> levels_;
};

// Finds text that an editor shows differently from what a parser sees: bytes that are not text, characters that are
// invisible or reorder the text around them, tabs in front of a line, which every reader treats differently, and lines
// that begin with a percent sign, which parsers skip when they do not know the directive.
std::optional<Fault> FindUnreadable(std::string_view text) {
  int line = 1, column = 1;
  bool leading = true;
  while (!text.empty()) {
    const DecodedCodePoint next = DecodeUtf8(text);
    if (!next.valid) return Fault{line, column, "not UTF-8 text"};
    const std::string_view character = text.substr(0, next.length);
    if (character == "\t" && leading) return Fault{line, column, "a tab in the indentation; use spaces"};
    if (character == "%" && column == 1) return Fault{line, column, "directives (%NAME) are not allowed"};
    const bool line_end = character == "\n" || text.substr(0, 2) == "\r\n";
    const bool plain = next.code_point >= 0x20 && next.code_point < 0x7F;
    if (!plain && !line_end && character != "\t") {
      if (const std::string shown = EscapeForTerminal(character); shown != character)
        return Fault{line, column, "an invisible character, " + shown + "; in quotes it can be written as an escape"};
    }
    if (character == "\n") {
      ++line;
      column = 1;
      leading = true;
    } else {
      column += static_cast<int>(next.length);  // in bytes, as yaml-cpp counts
      leading = leading && character == " ";
    }
    text.remove_prefix(next.length);
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
      std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.key.text == key; });
  return found == fields.end() ? nullptr : &found->value;
}

Error FaultAt(const std::string& name, const YamlNode& node, const std::string& what) {
  return Describe(name, {node.line, node.column, what});
}

Result<YamlNode> ReadYaml(std::string_view text, const std::string& name) {
  if (text.size() > kMaxYamlBytes)
    return Error::Invalid(name + ": larger than " + FormatSize(int64_t{kMaxYamlBytes}) + ", which no profile needs");
  if (const std::optional<Fault> fault = FindUnreadable(text)) return Describe(name, *fault);
  try {
    // yaml-cpp treats the end of the text as the end of an unclosed quote and silently drops the text in it. It reports
    // a fault when the document ends inside a quote, so an end marker is appended.
    std::istringstream stream(std::string(text) + (text.empty() || text.back() == '\n' ? "...\n" : "\n...\n"));
    YAML::Parser parser(stream);
    TreeBuilder builder;
    parser.HandleNextDocument(builder);
    parser.HandleNextDocument(builder);  // refuses a second one
    YamlNode root = builder.Take();
    if (root.IsNull()) return Error::Invalid(name + ":1:1: the file is empty");
    return root;
  } catch (const Fault& fault) {
    return Describe(name, fault);
  } catch (const YAML::Exception& error) {
    if (error.msg == YAML::ErrorMsg::DOC_IN_SCALAR || error.msg == YAML::ErrorMsg::EOF_IN_SCALAR)
      return Describe(name, {error.mark.line + 1, error.mark.column + 1, "a quote is still open here"});
    // A fault at the very end of the text has no position.
    return Describe(
        name, {std::max(error.mark.line, 0) + 1, std::max(error.mark.column, 0) + 1, EscapeForTerminal(error.msg)});
  }
}

}  // namespace caisson::policy
