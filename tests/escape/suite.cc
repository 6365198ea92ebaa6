#include "escape/suite.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "escape/runtimes.h"

namespace caisson::escape {

using nlohmann::json;

namespace {

// On an overloaded machine the groups of another run's sandbox stay empty for seconds before processes enter. Only
// groups that remain count as a failure.
constexpr int kCanaryPatienceMs = 30'000;

std::string Paint(const char* code, const std::string& text, bool colour) {
  return colour ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}

json ToJson(const std::optional<Observation>& observation) {
  if (!observation) return nullptr;
  return {{"saw", Name(observation->seen)}, {"errno", observation->error}, {"detail", observation->detail}};
}

json ToJson(const AttemptOutcome& attempt) {
  json document = {{"id", attempt.id},
                   {"verdict", Name(attempt.verdict)},
                   {"reason", attempt.reason},
                   {"stopped_by", attempt.stopped_by},
                   {"control", {{"reaches_kernel", attempt.reaches_kernel}, {"observation", ToJson(attempt.control)}}},
                   {"program", ToJson(attempt.program)},
                   {"killed", attempt.died},
                   {"report", nullptr}};
  if (attempt.result) {
    json violations = json::array();
    for (const ReportedViolation& violation : attempt.result->violations) {
      violations.push_back({{"class", violation.violation_class},
                            {"reason", violation.reason},
                            {"confidence", violation.confidence},
                            {"evidence", violation.evidence}});
    }
    document["report"] = {{"status", attempt.result->status},
                          {"failure_class", attempt.result->failure_class},
                          {"exit_code", attempt.result->exit_code},
                          {"violations", std::move(violations)}};
  }
  return document;
}

json ToJson(const RowOutcome& outcome) {
  json attempts = json::array();
  for (const AttemptOutcome& attempt : outcome.attempts) attempts.push_back(ToJson(attempt));
  json document = {{"id", outcome.row->id},
                   {"group", outcome.row->id.substr(0, 1)},
                   {"title", outcome.row->title},
                   {"severity", Name(outcome.row->severity)},
                   {"walls", outcome.row->walls},
                   {"verdict", Name(outcome.verdict)},
                   {"summary", outcome.summary},
                   {"attempts", std::move(attempts)},
                   {"judgement", nullptr},
                   {"canaries", outcome.canaries},
                   {"duration_ms", outcome.duration_ms}};
  if (outcome.judgement) {
    document["judgement"] = {{"verdict", Name(outcome.judgement->verdict)}, {"detail", outcome.judgement->detail}};
  }
  return document;
}

json Count(const std::vector<RowOutcome>& outcomes) {
  json counts = {{"rows", outcomes.size()}, {"passed", 0}, {"failed", 0}, {"skipped", 0}};
  for (const RowOutcome& outcome : outcomes) {
    const char* key = outcome.verdict == Verdict::kPass   ? "passed"
                      : outcome.verdict == Verdict::kFail ? "failed"
                                                          : "skipped";
    counts[key] = counts[key].get<int>() + 1;
  }
  return counts;
}

}  // namespace

RowOutcome RunRow(const Row& row, Host& host, Canaries& canaries) {
  RowOutcome outcome;
  outcome.row = &row;
  const int64_t start = NowMs();
  canaries.Arm();
  std::vector<const Attempt*> attempts;
  for (const Attempt& attempt : row.attempts) {
    if (attempt.judge_only) continue;
    attempts.push_back(&attempt);
    AttemptOutcome tried;
    tried.id = AttemptId(row, attempt);
    tried.reaches_kernel = attempt.control.reaches_kernel;
    const Outcome control = host.RunControl(tried.id, attempt.control);
    tried.control = control.Saw(tried.id);
    if (const auto fault = FaultInControl(tried.id, control)) tried.reason = *fault;
    outcome.attempts.push_back(std::move(tried));
  }
  // Leftovers of controls must not be blamed on the sandboxes.
  canaries.Check();
  canaries.Arm();
  for (size_t i = 0; i < attempts.size(); ++i) {
    AttemptOutcome& tried = outcome.attempts[i];
    if (!tried.reason.empty()) continue;
    const SandboxRequest request{.command = host.ProbeCommand(tried.id), .flags = attempts[i]->flags};
    JudgeAttempt(ExpectIn(host.runtime(), attempts[i]->expect), host.Run(request), &tried);
  }
  if (row.judge) outcome.judgement = row.judge(host);
  outcome.canaries = canaries.Check(kCanaryPatienceMs);
  JudgeRow(&outcome);
  outcome.duration_ms = NowMs() - start;
  return outcome;
}

RowOutcome SkipRow(const Row& row, const std::string& reason) {
  RowOutcome outcome;
  outcome.row = &row;
  outcome.judgement = Vacuous(reason);
  JudgeRow(&outcome);
  return outcome;
}

std::string DescribeRow(const RowOutcome& outcome, bool colour) {
  const char* code = outcome.verdict == Verdict::kPass ? "32" : outcome.verdict == Verdict::kFail ? "1;31" : "33";
  char title[80];
  std::snprintf(title, sizeof(title), "%-70.70s", outcome.row->title.c_str());
  std::string text = outcome.row->id + "  " + Paint(code, Name(outcome.verdict), colour) + "  " + title + "  ";
  text += outcome.verdict == Verdict::kPass ? outcome.summary : "";
  while (!text.empty() && text.back() == ' ') text.pop_back();
  text += "\n";
  for (const AttemptOutcome& attempt : outcome.attempts) {
    if (attempt.verdict == Verdict::kPass) continue;
    text += "           " + std::string(attempt.verdict == Verdict::kFail ? "failed " : "skipped ") + attempt.id +
            ": " + attempt.reason + "\n";
  }
  if (outcome.judgement && outcome.judgement->verdict != Verdict::kPass)
    text += "           " + outcome.judgement->detail + "\n";
  for (const std::string& fault : outcome.canaries) text += "           host: " + fault + "\n";
  return text;
}

std::string DescribeSummary(const std::vector<RowOutcome>& outcomes, int64_t duration_ms) {
  const json counts = Count(outcomes);
  char text[128];
  std::snprintf(text, sizeof(text), "%d rows: %d held, %d broken, %d skipped, in %.1f s\n", counts["rows"].get<int>(),
                counts["passed"].get<int>(), counts["failed"].get<int>(), counts["skipped"].get<int>(),
                static_cast<double>(duration_ms) / 1000);
  return text;
}

std::string ToJson(const std::vector<RowOutcome>& outcomes, const Machine& machine) {
  json rows = json::array();
  for (const RowOutcome& outcome : outcomes) rows.push_back(ToJson(outcome));
  const json document = {{"schema_version", 1},
                         {"kernel", machine.kernel},
                         {"caisson", {{"version", machine.caisson_version}, {"path", machine.caisson_path}}},
                         {"runtime", machine.runtime},
                         {"root", machine.root},
                         {"rows", std::move(rows)},
                         {"summary", Count(outcomes)}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace caisson::escape
