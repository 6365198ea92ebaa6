#include "intake/tree_rules.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"
#include "policy/syntax.h"

namespace caisson::intake {
namespace {

using policy::FileKind;

constexpr uint64_t Limits::*kFields[] = {&Limits::entries, &Limits::bytes, &Limits::file_bytes, &Limits::path_bytes,
                                         &Limits::depth,   &Limits::ratio, &Limits::ratio_free};

Error Refusal(std::string_view path, const std::string& problem) {
  return Error::Invalid(Quoted(path) + ": " + problem);
}

std::string Size(uint64_t bytes) { return FormatSize(static_cast<int64_t>(bytes)); }

size_t DepthOf(std::string_view path) { return static_cast<size_t>(std::count(path.begin(), path.end(), '/')); }

policy::Fault FaultInTarget(std::string_view link, std::string_view target) {
  if (policy::Fault fault = policy::FaultInPath(target)) return "the link's target " + *fault;
  if (!IsValidUtf8(target)) return "the link's target is not UTF-8";
  if (target[0] == '/') return "is a link to an absolute path, " + Quoted(target);
  size_t depth = DepthOf(link);
  while (!target.empty()) {
    const std::string_view component = target.substr(0, target.find('/'));
    target.remove_prefix(std::min(component.size() + 1, target.size()));
    if (component.empty() || component == ".") continue;
    if (component != "..") {
      ++depth;
    } else if (depth-- == 0) {
      return "is a link that leaves the tree";
    }
  }
  return std::nullopt;
}

}  // namespace

std::string Format(const Limits& limits) {
  std::string text;
  for (const auto field : kFields) text += (text.empty() ? "" : ",") + std::to_string(limits.*field);
  return text;
}

std::optional<Limits> ParseLimits(std::string_view text) {
  Limits limits;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (const auto field : kFields) {
    if (field != kFields[0] && (at == end || *at++ != ',')) return std::nullopt;
    const auto [stop, fault] = std::from_chars(at, end, limits.*field);
    if (fault != std::errc()) return std::nullopt;
    at = stop;
  }
  if (at != end) return std::nullopt;
  return limits;
}

Status TreeRules::Insert(const std::string& path, Node node) {
  if (nodes_.size() >= limits_.entries)
    return Refusal(path, "the archive has more than " + std::to_string(limits_.entries) + " entries");
  nodes_.emplace(path, node);
  return {};
}

Status TreeRules::EnterParents(const std::string& path) {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    const auto found = nodes_.find(parent);
    if (found == nodes_.end()) {
      Node implied;
      implied.implied = true;
      CAISSON_TRY_VOID(Insert(parent, implied));
    } else if (found->second.kind != FileKind::kDirectory) {
      return Refusal(path, "lies below " + Quoted(parent) +
                               (found->second.kind == FileKind::kSymlink ? ", which is a link" : ", which is a file"));
    }
  }
  return {};
}

Status TreeRules::Enter(const std::string& path, FileKind kind, std::string_view link_target) {
  if (const policy::Fault fault = policy::FaultInFileName(path)) return Refusal(path, "the name " + *fault);
  if (!IsValidUtf8(path)) return Refusal(path, "the name is not UTF-8");
  if (path.size() > limits_.path_bytes)
    return Refusal(path, "the name is longer than " + std::to_string(limits_.path_bytes) + " bytes");
  if (DepthOf(path) > limits_.depth)
    return Refusal(path, "nested deeper than " + std::to_string(limits_.depth) + " directories");
  if (kind == FileKind::kSymlink) {
    if (const policy::Fault fault = FaultInTarget(path, link_target)) return Refusal(path, *fault);
  }
  CAISSON_TRY_VOID(EnterParents(path));
  const auto found = nodes_.find(path);
  if (found == nodes_.end()) return Insert(path, Node{kind, false, 0});
  if (!found->second.implied) return Refusal(path, "is in the archive twice");
  if (kind != FileKind::kDirectory) return Refusal(path, "is no directory, but others lie below it");
  found->second.implied = false;
  return {};
}

Status TreeRules::Grow(const std::string& path, uint64_t count) {
  const auto found = nodes_.find(path);
  if (found == nodes_.end() || found->second.kind == FileKind::kDirectory) return Refusal(path, "may not hold bytes");
  Node& node = found->second;
  if (count > limits_.file_bytes - node.bytes) return Refusal(path, "is larger than " + Size(limits_.file_bytes));
  if (count > limits_.bytes - bytes_) return Refusal(path, "the archive unpacks to more than " + Size(limits_.bytes));
  node.bytes += count;
  bytes_ += count;
  if (bytes_ > limits_.ratio_free && bytes_ / limits_.ratio > archive_bytes_) {
    return Refusal(path, "the archive of " + Size(archive_bytes_) + " unpacks to more than " +
                             std::to_string(limits_.ratio) + " times its size");
  }
  return {};
}

std::vector<std::string> TreeRules::ImpliedDirectories() const {
  std::vector<std::string> directories;
  for (const auto& [path, node] : nodes_) {
    if (node.implied) directories.push_back(path);
  }
  return directories;
}

}  // namespace caisson::intake
