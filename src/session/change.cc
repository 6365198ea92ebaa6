#include "session/change.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "verify/digest.h"

namespace caisson::session {

namespace {

std::string OctalMode(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

// A text member, and the exact bytes beside it where JSON cannot hold them.
void AddBytes(nlohmann::ordered_json& object, const std::string& name, std::string_view bytes) {
  object[name] = ReplaceInvalidUtf8(bytes);
  if (!IsValidUtf8(bytes)) object[name + "_base64"] = Base64(bytes);
}

nlohmann::ordered_json FactsToJson(const EntryFacts& facts) {
  nlohmann::ordered_json object;
  object["type"] = kEntryTypeNames[static_cast<size_t>(facts.type)];
  if (facts.type == EntryType::kAbsent) return object;
  object["mode"] = OctalMode(facts.mode);
  if (facts.type == EntryType::kFile) object["bytes"] = facts.size;
  if (!facts.sha256.empty()) object["sha256"] = facts.sha256;
  if (facts.type == EntryType::kLink) AddBytes(object, "link_target", facts.link_target);
  return object;
}

// Length before bytes, so that no two lists of fields have the same form.
void AddField(verify::Sha256Stream& hash, std::string_view field) {
  hash.Add(std::to_string(field.size()) + ":");
  hash.Add(field);
}

void AddFacts(verify::Sha256Stream& hash, const EntryFacts& facts) {
  AddField(hash, kEntryTypeNames[static_cast<size_t>(facts.type)]);
  AddField(hash, OctalMode(facts.mode));
  AddField(hash, std::to_string(facts.size));
  AddField(hash, facts.link_target);
  AddField(hash, facts.sha256);
}

}  // namespace

DiffSummary Diff::Summary() const {
  DiffSummary summary;
  for (const Change& change : changes) {
    switch (change.kind) {
      case ChangeKind::kAdded:
        ++summary.added;
        break;
      case ChangeKind::kModified:
        ++summary.modified;
        break;
      case ChangeKind::kDeleted:
        ++summary.deleted;
        break;
      case ChangeKind::kMode:
        ++summary.mode;
        break;
      case ChangeKind::kType:
        ++summary.type;
        break;
    }
    if (!change.flags.empty()) ++summary.flagged;
    if (change.refused != Refusal::kNone) ++summary.refused;
    if (change.after.type == EntryType::kFile && change.kind != ChangeKind::kMode) {
      summary.bytes_after += change.after.size;
    }
  }
  return summary;
}

std::string Diff::Digest() const {
  verify::Sha256Stream hash;
  hash.Add("caisson-session-diff-1\n");
  for (const Change& change : changes) {
    AddField(hash, change.path);
    AddField(hash, kChangeKindNames[static_cast<size_t>(change.kind)]);
    AddFacts(hash, change.before);
    AddFacts(hash, change.after);
    AddField(hash, FlagNames(change.flags));
    AddField(hash, kRefusalNames[static_cast<size_t>(change.refused)]);
    AddField(hash, change.host_removed ? "host_removed" : "");
  }
  return hash.FinishHex();
}

std::string FlagNames(const std::vector<ChangeFlag>& flags) {
  std::string text;
  for (const ChangeFlag flag : flags) {
    if (!text.empty()) text += ',';
    text += kChangeFlagNames[static_cast<size_t>(flag)];
  }
  return text;
}

std::string QuotedPath(std::string_view path) {
  bool plain = !path.empty() && path.front() != ' ' && path.back() != ' ';
  for (const char c : path) plain = plain && c >= ' ' && c <= '~' && c != '"' && c != '\\';
  if (plain) return std::string(path);
  std::string text = "\"";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte >= 0x7f) {
      char octal[5];
      std::snprintf(octal, sizeof(octal), "\\%03o", static_cast<unsigned>(byte));
      text += octal;
    } else {
      text += c;
    }
  }
  return text + '"';
}

std::string DiffToJson(const Diff& diff) {
  nlohmann::ordered_json document;
  document["schema_version"] = 1;
  document["digest"] = diff.Digest();
  const DiffSummary summary = diff.Summary();
  document["summary"] = {{"added", summary.added},     {"modified", summary.modified},
                         {"deleted", summary.deleted}, {"mode", summary.mode},
                         {"type", summary.type},       {"flagged", summary.flagged},
                         {"refused", summary.refused}, {"bytes_after", summary.bytes_after}};
  auto& list = document["changes"] = nlohmann::ordered_json::array();
  for (const Change& change : diff.changes) {
    nlohmann::ordered_json object;
    AddBytes(object, "path", change.path);
    object["kind"] = kChangeKindNames[static_cast<size_t>(change.kind)];
    object["before"] = FactsToJson(change.before);
    object["after"] = FactsToJson(change.after);
    auto& flags = object["flags"] = nlohmann::ordered_json::array();
    for (const ChangeFlag flag : change.flags) flags.push_back(kChangeFlagNames[static_cast<size_t>(flag)]);
    if (change.refused != Refusal::kNone) object["refused"] = kRefusalNames[static_cast<size_t>(change.refused)];
    if (change.host_removed) object["host_removed"] = true;
    list.push_back(std::move(object));
  }
  return document.dump();
}

std::string DiffToText(const Diff& diff) {
  std::string text;
  int64_t below_git = 0;
  for (const Change& change : diff.changes) {
    if (change.refused == Refusal::kGit) {
      ++below_git;
      continue;
    }
    static constexpr char kLetters[] = "AMDPT";
    text += kLetters[static_cast<size_t>(change.kind)];
    text += change.flags.empty() && change.refused == Refusal::kNone ? "  " : "! ";
    text += QuotedPath(change.path);
    if (change.after.type == EntryType::kDirectory) text += '/';
    if (change.after.type == EntryType::kLink) text += " -> " + QuotedPath(change.after.link_target);
    if (change.kind == ChangeKind::kMode) {
      text += "  " + OctalMode(change.before.mode) + " -> " + OctalMode(change.after.mode);
    }
    if (change.kind == ChangeKind::kType) {
      text += std::string("  ") + kEntryTypeNames[static_cast<size_t>(change.before.type)] + " -> " +
              kEntryTypeNames[static_cast<size_t>(change.after.type)];
    }
    if (!change.flags.empty()) text += "  [" + FlagNames(change.flags) + "]";
    if (change.refused != Refusal::kNone) {
      text += std::string("  refused: ") + kRefusalNames[static_cast<size_t>(change.refused)];
    }
    text += '\n';
  }
  if (below_git > 0) text += "!  " + std::to_string(below_git) + " changes in .git, which are never applied as files\n";
  const DiffSummary summary = diff.Summary();
  text += std::to_string(summary.added) + " added, " + std::to_string(summary.modified) + " modified, " +
          std::to_string(summary.deleted) + " deleted, " + std::to_string(summary.mode) + " mode, " +
          std::to_string(summary.type) + " type; " + std::to_string(summary.flagged) + " flagged, " +
          std::to_string(summary.refused) + " refused\n";
  return text;
}

}  // namespace caisson::session
