// Which changes of a diff are applied, and by which steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "session/apply.h"
#include "session/journal.h"

namespace caisson::session {

// `*` and `?` do not match a slash, `**` does.
bool MatchesPattern(std::string_view path, std::string_view pattern);

struct PlannedStep {
  ApplyStep step;
  const Change* change = nullptr;
  EntryStat judged;  // of the host's entry; absent for kAdd
};

// An entry to be written into the staging directory before the first swap, in this order.
struct PreparedEntry {
  std::string place;  // below the staging directory: "7", or "7/src/main.c" inside a new directory
  const Change* change = nullptr;
};

struct ApplyPlan {
  std::vector<const Change*> changes;  // in the diff's order
  std::vector<RefusedChange> refused;
  std::vector<PreparedEntry> prepared;
  std::vector<PlannedStep> steps;  // removals from the leaves up, then everything else from the root down
};

ApplyPlan MakePlan(const Diff& diff, const ApplyOptions& options);

}  // namespace caisson::session
