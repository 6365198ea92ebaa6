#include "session/plan.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace caisson::session {

namespace {

bool BecomesDirectory(const Change& change) {
  return change.after.type == EntryType::kDirectory && change.before.type != EntryType::kDirectory;
}

bool StopsBeingDirectory(const Change& change) {
  return change.before.type == EntryType::kDirectory && change.after.type != EntryType::kDirectory;
}

// Calls `visit` with every directory above the path, the nearest first, until it returns true.
template <typename Visit>
bool AnyAbove(std::string_view path, const Visit& visit) {
  for (path = ParentOf(path); !path.empty(); path = ParentOf(path)) {
    if (visit(std::string(path))) return true;
  }
  return false;
}

bool SelectedByPattern(std::string_view path, const std::vector<std::string>& patterns) {
  const auto matches = [&](std::string_view candidate) {
    return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
      while (pattern.size() > 1 && pattern.back() == '/') pattern.remove_suffix(1);
      return candidate == pattern || MatchesPattern(candidate, pattern);
    });
  };
  return matches(path) || AnyAbove(path, [&](const std::string& directory) { return matches(directory); });
}

std::vector<bool> Select(const Diff& diff, const std::vector<std::string>& patterns) {
  std::vector<bool> selected(diff.changes.size(), patterns.empty());
  std::unordered_set<std::string> needed;  // directories that selected changes lie in
  for (size_t i = diff.changes.size(); i-- > 0 && !patterns.empty();) {
    const Change& change = diff.changes[i];
    selected[i] =
        SelectedByPattern(change.path, patterns) || (BecomesDirectory(change) && needed.count(change.path) != 0);
    if (selected[i])
      AnyAbove(change.path, [&](std::string directory) { return !needed.insert(std::move(directory)).second; });
  }
  return selected;
}

bool Match(std::string_view path, std::string_view pattern, int& work) {
  while (!pattern.empty()) {
    if (--work < 0) return false;
    if (pattern.substr(0, 2) == "**") {
      std::string_view rest = pattern.substr(2);
      if (!rest.empty() && rest.front() == '/' && Match(path, rest.substr(1), work)) return true;  // "**/x" is also "x"
      for (size_t skip = 0; skip <= path.size(); ++skip) {
        if (Match(path.substr(skip), rest, work)) return true;
      }
      return false;
    }
    if (pattern.front() == '*') {
      for (size_t skip = 0; skip <= path.size(); ++skip) {
        if (Match(path.substr(skip), pattern.substr(1), work)) return true;
        if (skip < path.size() && path[skip] == '/') return false;
      }
      return false;
    }
    if (path.empty() || (pattern.front() == '?' ? path.front() == '/' : path.front() != pattern.front())) return false;
    path.remove_prefix(1);
    pattern.remove_prefix(1);
  }
  return path.empty();
}

// Leaves out what is refused, and what cannot be done without it.
std::vector<const Change*> Permitted(const Diff& diff, const ApplyOptions& options,
                                     std::vector<RefusedChange>& refused) {
  const std::vector<bool> selected = Select(diff, options.only);
  std::unordered_set<std::string> staying;  // directories that keep an entry, and so cannot go
  for (size_t i = diff.changes.size(); i-- > 0;) {
    const Change& change = diff.changes[i];
    const bool goes = change.after.type == EntryType::kAbsent || StopsBeingDirectory(change);
    if (!goes || (selected[i] && change.refused == Refusal::kNone && staying.count(change.path) == 0)) continue;
    AnyAbove(change.path, [&](std::string directory) { return !staying.insert(std::move(directory)).second; });
  }
  std::vector<const Change*> permitted;
  std::unordered_set<std::string> blocked;  // directories that will not be made, or not be given up
  for (size_t i = 0; i < diff.changes.size(); ++i) {
    const Change& change = diff.changes[i];
    if (!selected[i]) continue;
    Refusal reason = change.refused;
    const bool leaves =
        std::find(change.flags.begin(), change.flags.end(), ChangeFlag::kLinkLeavesTree) != change.flags.end();
    if (reason == Refusal::kNone && leaves && !options.allow_leaving_links) reason = Refusal::kLinkLeavesTree;
    const bool inside =
        AnyAbove(change.path, [&](const std::string& directory) { return blocked.count(directory) != 0; });
    if (reason == Refusal::kNone && (inside || (StopsBeingDirectory(change) && staying.count(change.path) != 0))) {
      reason = Refusal::kInsideRefused;
    }
    if (reason == Refusal::kNone) {
      permitted.push_back(&change);
      continue;
    }
    refused.push_back({change.path, reason});
    if (BecomesDirectory(change) || change.kind == ChangeKind::kType) blocked.insert(change.path);
  }
  return permitted;
}

}  // namespace

bool MatchesPattern(std::string_view path, std::string_view pattern) {
  int work = 100'000;  // a pattern of many stars would try every split
  return Match(path, pattern, work);
}

ApplyPlan MakePlan(const Diff& diff, const ApplyOptions& options) {
  ApplyPlan plan;
  plan.changes = Permitted(diff, options, plan.refused);
  std::unordered_map<std::string, std::string> new_directories;  // path to place
  std::vector<PlannedStep> removals, others;
  uint64_t slot = 0;
  for (const Change* change : plan.changes) {
    PlannedStep planned;
    planned.change = change;
    planned.step.path = change->path;
    planned.step.slot = ++slot;
    if (change->kind == ChangeKind::kDeleted) {
      planned.step.kind = ApplyStep::Kind::kRemove;
      removals.push_back(planned);
      continue;
    }
    if (change->kind == ChangeKind::kMode) {
      planned.step.kind = ApplyStep::Kind::kMode;
      others.push_back(planned);
      continue;
    }
    const auto parent = new_directories.find(std::string(ParentOf(change->path)));
    const bool inside = parent != new_directories.end();
    const std::string place = inside ? Joined(parent->second, NameOf(change->path)) : std::to_string(slot);
    plan.prepared.push_back({place, change});
    if (BecomesDirectory(*change)) new_directories[change->path] = place;
    if (inside) continue;
    planned.step.kind = change->kind == ChangeKind::kAdded ? ApplyStep::Kind::kAdd : ApplyStep::Kind::kReplace;
    others.push_back(planned);
  }
  std::reverse(removals.begin(), removals.end());
  plan.steps = std::move(removals);
  plan.steps.insert(plan.steps.end(), others.begin(), others.end());
  return plan;
}

}  // namespace caisson::session
