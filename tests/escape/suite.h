// Runs rows: controls, then sandboxes, then canaries. Runs: host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "escape/canaries.h"
#include "escape/host.h"
#include "escape/judge.h"

namespace caisson::escape {

RowOutcome RunRow(const Row& row, Host& host, Canaries& canaries);
// The row was not tried.
RowOutcome SkipRow(const Row& row, const std::string& reason);

struct Machine {
  std::string kernel, caisson_version, caisson_path, runtime;
  bool root = false;
};

// One line for a person, and one more for each thing that failed or was skipped.
std::string DescribeRow(const RowOutcome& outcome, bool colour);
std::string DescribeSummary(const std::vector<RowOutcome>& outcomes, int64_t duration_ms);
// The whole as one JSON document.
std::string ToJson(const std::vector<RowOutcome>& outcomes, const Machine& machine);

}  // namespace caisson::escape
