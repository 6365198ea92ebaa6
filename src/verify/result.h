// The verification result and its JSON form. The contract defines the names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "runtime/runtime.h"
#include "verify/default_checks.h"
#include "verify/output_text.h"
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

// The image of a run, as results name it.
struct ImageIdentity {
  std::string name;
  std::string digest;  // empty: none, for a virtual environment of the host

  static ImageIdentity Of(const policy::PlannedImage& image) { return {image.name, image.digest}; }
  nlohmann::json ToJson() const;
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
  std::string message;   // for people, when there is more to say than the class
  int error_number = 0;  // errno behind an infrastructure error, where there is one; not in the document
  std::vector<CheckRecord> checks;
  std::vector<SkippedCheck> skipped_checks;
  std::vector<Artifact> artifacts;
  std::vector<std::string> skipped_artifacts;
  int64_t duration_ms = 0;
  std::optional<runtime::IsolationReport> isolation;
  std::optional<ImageIdentity> image;
  std::string policy_digest;
  std::string source_digest;
  nlohmann::ordered_json policy;    // the effective one; null when nothing was admitted
  nlohmann::ordered_json decision;  // null when the request was never judged
};

const char* StatusName(VerdictStatus status);
const char* ModeName(Mode mode);

nlohmann::json ToJson(const Violation& violation);
nlohmann::json ToJson(const Notice& notice);
nlohmann::json ToJson(const Usage& usage);
nlohmann::json ToJson(const NetworkUse& use);
nlohmann::json ToJson(const runtime::IsolationReport& isolation);
nlohmann::json ToJson(const VerificationResult& result);

// The standard output or the standard error of all checks.
OutputText OutputOf(const VerificationResult& result, CapturedStream CommandOutcome::*stream);
// Writes the same document as ToJson without holding the whole of it in memory. Returns the offset of the members
// behind the output: "{" and the text from that offset on are the document without `stdout`, `stderr` and their base64
// forms.
Result<int64_t> WriteJson(const VerificationResult& result, const OutputText::Sink& sink);

}  // namespace caisson::verify
