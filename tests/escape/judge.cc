#include "escape/judge.h"

#include <signal.h>
#include <string.h>

#include <algorithm>

namespace caisson::escape {

namespace {

std::string ErrnoName(int error) {
  const char* name = ::strerrorname_np(error);
  return name != nullptr ? name : "errno " + std::to_string(error);
}

std::string Describe(const Observation& observation) {
  std::string text = Name(observation.seen);
  if (observation.error != 0) text += " " + ErrnoName(observation.error);
  return observation.detail.empty() ? text : text + ": " + observation.detail;
}

std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1,
                     end - (start == std::string::npos ? 0 : start + 1) + 1);
}

std::string Ending(const Finished& process) {
  std::string text = process.timed_out     ? "it did not end"
                     : process.signal != 0 ? "signal " + std::to_string(process.signal)
                                           : "exit code " + std::to_string(process.exit_code);
  if (const std::string line = LastLine(process.err); !line.empty()) text += ", " + line;
  return text;
}

// Killed by the filter or the supervisor, not crashed.
bool WasKilled(const ResultDocument& result) {
  return result.signal == SIGKILL || result.signal == SIGSYS || result.exit_code == 124;
}

// The fault in what the program saw; empty: none.
std::string FaultInProgram(const ParkedSetup& expect, const Outcome& run, const AttemptOutcome& outcome) {
  if (run.process.timed_out) return "Caisson did not end";
  if (!run.result) return "Caisson wrote no result: " + Ending(run.process);
  if (run.result->status == "error" || run.result->status == "rejected")
    return "Caisson did not run it: " + run.result->message;
  if (outcome.died) {
    return expect.death == Death::kNever ? "it was killed, and should have got an error" : "";
  }
  if (!outcome.program) return "the probe said nothing: " + Ending(run.process);
  if (outcome.program->seen != Seen::kBlocked) return Describe(*outcome.program);
  if (expect.death == Death::kRequired) return "it was not killed: " + Describe(*outcome.program);
  if (!expect.errnos.empty() &&
      std::find(expect.errnos.begin(), expect.errnos.end(), outcome.program->error) == expect.errnos.end()) {
    return "another answer than expected: " + Describe(*outcome.program);
  }
  return "";
}

bool Matches(const Report& report, const ReportedViolation& violation) {
  if (report.violation_class != violation.violation_class || report.reason != violation.reason) return false;
  if (report.syscall.empty()) return true;
  const auto found = violation.evidence.find("syscall");
  return found != violation.evidence.end() && found->second == report.syscall;
}

// The fault in what Caisson reported; empty: none.
std::string FaultInReport(const ParkedSetup& expect, const ResultDocument& result) {
  for (const Report& report : expect.reports) {
    const bool reported = std::any_of(result.violations.begin(), result.violations.end(),
                                      [&](const ReportedViolation& violation) { return Matches(report, violation); });
    if (!reported && !report.optional) {
      return "not reported: " + report.violation_class + " " + report.reason + " " + report.syscall;
    }
  }
  for (const ReportedViolation& violation : result.violations) {
    const bool expected = std::any_of(expect.reports.begin(), expect.reports.end(),
                                      [&](const Report& report) { return Matches(report, violation); });
    if (!expected) return "reported without need: " + violation.violation_class + " " + violation.reason;
  }
  const bool of_a_violation = std::any_of(
      result.violations.begin(), result.violations.end(),
      [&](const ReportedViolation& violation) { return violation.violation_class == result.failure_class; });
  const bool right = !expect.failure_class.empty() ? result.failure_class == expect.failure_class
                     : result.violations.empty()   ? result.failure_class.empty()
                                                   : of_a_violation;
  return right ? "" : "the run's failure class is " + (result.failure_class.empty() ? "none" : result.failure_class);
}

// The distinct ones, in order.
std::string Join(const std::vector<std::string>& parts) {
  std::vector<std::string> seen;
  std::string text;
  for (const std::string& part : parts) {
    if (part.empty() || std::find(seen.begin(), seen.end(), part) != seen.end()) continue;
    seen.push_back(part);
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

}  // namespace

std::optional<std::string> FaultInControl(const std::string& attempt_id, const Outcome& control) {
  const std::optional<Observation> saw = control.Saw(attempt_id);
  if (!saw) return "without a sandbox it said nothing: " + Ending(control.process);
  if (saw->seen != Seen::kEscaped) return "without a sandbox it does not work either: " + Describe(*saw);
  return std::nullopt;
}

void JudgeAttempt(const ParkedSetup& expect, const Outcome& run, AttemptOutcome* outcome) {
  outcome->program = run.Saw(outcome->id);
  outcome->result = run.result;
  outcome->died = !outcome->program && run.result && WasKilled(*run.result);
  outcome->reason = FaultInProgram(expect, run, *outcome);
  if (outcome->reason.empty()) outcome->reason = FaultInReport(expect, *run.result);
  outcome->verdict = outcome->reason.empty() ? Verdict::kPass : Verdict::kFail;
  if (outcome->verdict == Verdict::kFail) return;
  std::vector<std::string> reasons;
  for (const ReportedViolation& violation : run.result->violations) reasons.push_back(violation.reason);
  outcome->stopped_by = outcome->died                  ? "killed"
                        : outcome->program->error != 0 ? ErrnoName(outcome->program->error)
                                                       : outcome->program->detail;
  if (!reasons.empty()) outcome->stopped_by += " " + Join(reasons);
}

void JudgeRow(RowOutcome* outcome) {
  size_t held = 0, skipped = 0;
  std::vector<std::string> failures, skips, stops;
  for (const AttemptOutcome& attempt : outcome->attempts) {
    if (attempt.verdict == Verdict::kPass) {
      ++held;
      stops.push_back(attempt.stopped_by);
    } else if (attempt.verdict == Verdict::kFail) {
      failures.push_back(attempt.id + ": " + attempt.reason);
    } else {
      ++skipped;
      skips.push_back(attempt.id + ": " + attempt.reason);
    }
  }
  if (outcome->judgement) {
    const Judgement& judgement = *outcome->judgement;
    if (judgement.verdict == Verdict::kPass) ++held;
    (judgement.verdict == Verdict::kPass   ? stops
     : judgement.verdict == Verdict::kFail ? failures
                                           : skips)
        .push_back(judgement.detail);
  }
  for (const std::string& fault : outcome->canaries) failures.push_back("host: " + fault);
  if (!failures.empty()) {
    outcome->verdict = Verdict::kFail;
    outcome->summary = Join(failures);
  } else if (held == 0) {
    outcome->verdict = Verdict::kSkip;
    outcome->summary = skips.empty() ? "nothing was tried" : Join(skips);
  } else {
    outcome->verdict = Verdict::kPass;
    outcome->summary = Join(stops);
    if (skipped > 0) {
      outcome->summary +=
          " (" + std::to_string(skipped) + " of " + std::to_string(outcome->attempts.size()) + " could not be tried)";
    }
  }
}

}  // namespace caisson::escape
