// The verification result and its JSON form. Names are the contract's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "runtime/runtime.h"
#include "verify/default_checks.h"
#include "verify/request.h"

namespace caisson::verify {

struct CheckRecord {
  std::string name;
  std::string tier;
  std::vector<std::string> argv;
  CommandOutcome outcome;
};

struct Artifact {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;
  std::string ref;
};

enum class VerdictStatus { kPass, kFail, kError, kRejected, kCancelled };

struct Verdict {
  VerdictStatus status = VerdictStatus::kPass;
  std::string failure_class;  // empty: none
  std::string terminal_event = "completed";
};

struct VerificationResult {
  std::string request_id;
  int64_t attempt = 1;
  Mode mode = Mode::kBalanced;
  Verdict verdict;
  std::string message;  // for people, when there is something to say beyond the class
  std::vector<CheckRecord> checks;
  std::vector<SkippedCheck> skipped_checks;
  std::vector<Artifact> artifacts;
  std::vector<std::string> skipped_artifacts;
  int64_t duration_ms = 0;
  std::optional<runtime::IsolationReport> isolation;
  std::string policy_digest;
  std::string source_digest;
  nlohmann::ordered_json policy;    // the effective one; null when nothing was admitted
  nlohmann::ordered_json decision;  // null when nothing came to be judged
};

const char* StatusName(VerdictStatus status);
const char* ModeName(Mode mode);

nlohmann::json ToJson(const Violation& violation);
nlohmann::json ToJson(const Usage& usage);
nlohmann::json ToJson(const runtime::IsolationReport& isolation);
nlohmann::json ToJson(const VerificationResult& result);

// A stream as text: valid UTF-8, with a line in the middle that says what was left out.
std::string StreamText(const CapturedStream& stream);

}  // namespace caisson::verify
