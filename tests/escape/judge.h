// Turns observations into a verdict. Pure: the unit tests call it with made-up observations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/row.h"

namespace caisson::escape {

// One attempt: its result bare, its observation inside, and Caisson's report.
struct AttemptOutcome {
  std::string id;
  bool reaches_kernel = false;
  Verdict verdict = Verdict::kSkip;
  std::string reason;      // of a failure or a skip
  std::string stopped_by;  // of a pass: "EPERM syscall.ptrace", "killed syscall.kernel"
  std::optional<Observation> control, program;
  bool died = false;
  std::optional<ResultDocument> result;
};

struct RowOutcome {
  const Row* row = nullptr;
  Verdict verdict = Verdict::kSkip;
  std::string summary;  // what stopped it, or why it failed or was skipped
  std::vector<AttemptOutcome> attempts;
  std::optional<Judgement> judgement;
  std::vector<std::string> canaries;  // what changed on the host
  int64_t duration_ms = 0;
};

// Why the control proves nothing; absent when it escaped, as it must.
std::optional<std::string> FaultInControl(const std::string& attempt_id, const Outcome& control);

// Fills verdict, reason and stopped_by of an attempt whose control escaped.
void JudgeAttempt(const ParkedSetup& expect, const Outcome& run, AttemptOutcome* outcome);

// Fills verdict and summary from the rest: one failure fails the row, and a row in which nothing ran is skipped.
void JudgeRow(RowOutcome* outcome);

}  // namespace caisson::escape
