#include "cli/result_text.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/service_access.h"
#include "verify/result_reader.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

constexpr size_t kTailLines = 12;

class Painter {
 public:
  Painter() : colour_(::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr) {}
  std::string operator()(const char* code, const std::string& text) const {
    return colour_ ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
  }

 private:
  bool colour_;
};

std::string Duration(const json& document) { return FormatDuration(document.value("duration_ms", int64_t{0})); }

void PrintTail(const Painter& paint, const json& result, const char* stream) {
  std::string text = result.value(stream, "");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t start = text.size();
  for (size_t lines = 0; start > 0; --start)
    if (text[start - 1] == '\n' && ++lines == kTailLines) break;
  text.erase(0, start);
  if (text.empty()) return;
  std::printf("    %s\n", paint("2", stream).c_str());
  std::string shown = EscapeForTerminal(text, LineBreaks::kKeep);
  for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos; at += 7) shown.replace(at, 1, "\n      ");
  std::printf("      %s\n", shown.c_str());
}

std::string Text(const json& value) {
  return EscapeForTerminal(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string Describe(const json& violation) {
  std::string line = Shown(violation, "reason");
  if (const auto evidence = violation.find("evidence"); evidence != violation.end() && evidence->is_object()) {
    for (const auto& [name, value] : evidence->items()) line += "  " + EscapeForTerminal(name) + "=" + Text(value);
  }
  const std::string limit = Shown(violation, "limit");
  if (!limit.empty()) line += "  limit=" + limit;
  const auto found = violation.find("count");
  const int64_t count = found != violation.end() && found->is_number_integer() ? found->get<int64_t>() : 1;
  return count > 1 ? line + "  (and " + std::to_string(count - 1) + " more of this kind)" : line;
}

const json& ListOf(const json& result, const char* name) {
  static const json none = json::array();
  const auto found = result.find(name);
  return found != result.end() && found->is_array() ? *found : none;
}

}  // namespace

Result<int> ExitCodeOf(const json& result) {
  if (const Status fits = verify::ExpectResult(result, ""); !fits)
    return Error{ErrorKind::kSystem, 0, "the service's answer is no result: " + fits.error().message};
  using verify::VerdictStatus;
  for (const VerdictStatus status :
       {VerdictStatus::kPass, VerdictStatus::kFail, VerdictStatus::kCancelled, VerdictStatus::kRejected}) {
    if (result["status"] == verify::StatusName(status)) return ExitCodeOf(status);
  }
  return kExitInfrastructure;
}

void PrintResult(const json& result, const std::string& subject) {
  const Painter paint;
  std::string word = Shown(result, "status");
  const char* colour = word == "pass" ? "32" : word == "fail" ? "31" : "33";
  const bool pass = word == "pass";
  for (char& letter : word)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  std::string head = paint(colour, word) + "  " + paint("1", EscapeForTerminal(subject));
  const std::string failure = Shown(result, "failure_class");
  if (!failure.empty()) head += "  " + failure;
  std::printf("%s  %s\n", head.c_str(), paint("2", Duration(result)).c_str());
  const std::string message = Shown(result, "message");
  if (!message.empty()) std::printf("  %s\n", message.c_str());
  const json& checks = ListOf(result, "checks");
  for (const json& check : checks) {
    const bool failed = !pass && &check == &checks.back();
    const std::string signal = Shown(check, "signal");
    const std::string ending = !failed           ? ""
                               : !signal.empty() ? "  signal " + signal
                                                 : "  exit " + Shown(check, "exit_code");
    std::printf("  %s %s%s  %s\n", failed ? paint("31", "✗").c_str() : paint("32", "✓").c_str(),
                Shown(check, "name").c_str(), ending.c_str(), paint("2", Duration(check)).c_str());
  }
  for (const json& violation : ListOf(result, "violations")) {
    std::printf("      %s %s\n", paint("31", Shown(violation, "class")).c_str(), Describe(violation).c_str());
    const std::string suggestion = Shown(violation, "suggestion");
    if (!suggestion.empty()) std::printf("      %s\n", paint("2", suggestion).c_str());
  }
  if (!pass) {
    PrintTail(paint, result, "stdout");
    PrintTail(paint, result, "stderr");
  }
  for (const json& check : ListOf(result, "skipped_checks"))
    std::printf("  %s %s  %s\n", paint("2", "-").c_str(), Shown(check, "name").c_str(),
                paint("2", "skipped: " + Shown(check, "reason")).c_str());
  for (const json& artifact : ListOf(result, "artifacts"))
    std::printf("  + %s  %s  %s\n", Shown(artifact, "path").c_str(),
                FormatSize(artifact.value("bytes", int64_t{0})).c_str(), Shown(artifact, "ref").c_str());
  for (const json& skipped : ListOf(result, "skipped_artifacts"))
    std::printf("  ! not collected: %s\n", Text(skipped).c_str());
  if (const auto isolation = result.find("isolation"); isolation != result.end()) {
    for (const json& wall : ListOf(*isolation, "degraded"))
      std::printf("  %s %s\n", paint("33", "degraded").c_str(), Text(wall).c_str());
  }
}

}  // namespace caisson::cli
