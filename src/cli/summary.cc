#include "cli/summary.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/units.h"
#include "base/utf8.h"

namespace caisson::cli {

namespace {

constexpr char kGreen[] = "32", kRed[] = "31", kYellow[] = "33", kDim[] = "2", kBold[] = "1";
constexpr size_t kTailLines = 12;

std::string LastLines(const std::string& text, size_t count) {
  size_t end = text.size();
  while (end > 0 && text[end - 1] == '\n') --end;
  size_t start = end;
  for (size_t lines = 0; start > 0; --start) {
    if (text[start - 1] == '\n' && ++lines == count) break;
  }
  return text.substr(start, end - start);
}

std::string Describe(const Violation& violation) {
  std::string line = violation.reason;
  for (const auto& [key, value] : violation.evidence) {
    const auto* number = std::get_if<int64_t>(&value);
    line += "  " + key + "=" + (number != nullptr ? std::to_string(*number) : std::get<std::string>(value));
  }
  if (violation.limit >= 0) line += "  limit=" + std::to_string(violation.limit);
  return EscapeForTerminal(line);
}

}  // namespace

Summary::Summary(bool silent, std::string subject)
    : silent_(silent),
      colour_(::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr),
      progress_(!silent && ::isatty(STDERR_FILENO) != 0),
      subject_(std::move(subject)) {}

std::string Summary::Paint(const char* code, const std::string& text) const {
  return colour_ ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}

void Summary::ClearProgress() {
  if (progress_) std::fputs("\r\033[K", stderr);
}

void Summary::Started(const policy::PlannedCommand& command, size_t index, size_t count) {
  if (!progress_) return;
  std::fprintf(stderr, "\r\033[K[%zu/%zu] %s …", index + 1, count, EscapeForTerminal(command.name).c_str());
  std::fflush(stderr);
}

void Summary::Finished(const verify::CheckRecord&) { ClearProgress(); }

void Summary::Print(const verify::VerificationResult& result) {
  if (silent_) return;
  ClearProgress();
  const verify::Verdict& verdict = result.verdict;
  const bool pass = verdict.status == verify::VerdictStatus::kPass;
  const char* colour = pass ? kGreen : verdict.status == verify::VerdictStatus::kFail ? kRed : kYellow;
  std::string word = verify::StatusName(verdict.status);
  for (char& letter : word) letter = static_cast<char>(letter - 'a' + 'A');
  std::string head = Paint(colour, word) + "  " + Paint(kBold, EscapeForTerminal(subject_));
  if (!verdict.failure_class.empty()) head += "  " + verdict.failure_class;
  std::printf("%s  %s\n", head.c_str(), Paint(kDim, FormatDuration(result.duration_ms)).c_str());
  if (!result.message.empty()) std::printf("  %s\n", EscapeForTerminal(result.message).c_str());
  for (size_t i = 0; i < result.checks.size(); ++i) {
    const verify::CheckRecord& check = result.checks[i];
    const bool failed = !pass && i + 1 == result.checks.size();
    std::string line = "  " + (failed ? Paint(kRed, "✗") : Paint(kGreen, "✓")) + " " + EscapeForTerminal(check.name);
    if (failed && check.outcome.signal != 0)
      line += "  signal " + std::to_string(check.outcome.signal);
    else if (failed)
      line += "  exit " + std::to_string(check.outcome.exit_code);
    std::printf("%s  %s\n", line.c_str(), Paint(kDim, FormatDuration(check.outcome.duration_ms)).c_str());
    for (const Violation& violation : check.outcome.violations) {
      std::printf("      %s %s\n", Paint(kRed, ClassName(violation.violation_class)).c_str(),
                  Describe(violation).c_str());
      if (!violation.suggestion.empty()) std::printf("      %s\n", Paint(kDim, violation.suggestion).c_str());
    }
    if (!failed) continue;
    for (const auto& [name, stream] :
         {std::pair{"stdout", &check.outcome.stdout_stream}, std::pair{"stderr", &check.outcome.stderr_stream}}) {
      const std::string text = LastLines(verify::StreamText(*stream), kTailLines);
      if (text.empty()) continue;
      std::printf("    %s\n", Paint(kDim, name).c_str());
      std::string shown = EscapeForTerminal(text, LineBreaks::kKeep);
      for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos; at += 7) shown.replace(at, 1, "\n      ");
      std::printf("      %s\n", shown.c_str());
    }
  }
  for (const verify::SkippedCheck& check : result.skipped_checks) {
    std::printf("  %s %s  %s\n", Paint(kDim, "-").c_str(), EscapeForTerminal(check.name).c_str(),
                Paint(kDim, "skipped: " + check.reason).c_str());
  }
  for (const verify::Artifact& artifact : result.artifacts) {
    std::printf("  + %s  %s  %s\n", EscapeForTerminal(artifact.path).c_str(),
                FormatSize(static_cast<int64_t>(artifact.bytes)).c_str(), EscapeForTerminal(artifact.ref).c_str());
  }
  for (const std::string& skipped : result.skipped_artifacts)
    std::printf("  ! not collected: %s\n", EscapeForTerminal(skipped).c_str());
  if (result.isolation) {
    for (const std::string& wall : result.isolation->degraded)
      std::printf("  %s %s\n", Paint(kYellow, "degraded").c_str(), EscapeForTerminal(wall).c_str());
  }
}

}  // namespace caisson::cli
