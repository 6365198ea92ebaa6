// Drives one run from admission to result: admitted or refused, recorded, started, checked, recorded again. `caisson
// run`, `caisson verify` and the service's workers share this code and differ only in their sinks.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/runtime.h"
#include "verify/admission.h"
#include "verify/event_log.h"
#include "verify/result.h"

namespace caisson::verify {

// The audit log. Each call returns when its record is on the disk; after an error, the action that the record announces
// must not happen.
class AuditSink {
 public:
  virtual ~AuditSink() = default;
  virtual Status Admitted(const Request& request, const verify::Admitted& admitted) = 0;
  virtual Status Rejected(const Request& request, const Error& error) = 0;
  // `digest` is the digest of the stored result document.
  virtual Status Ended(const VerificationResult& result, const std::string& digest) = 0;
};

// Stores a collected file and returns its reference.
using KeepArtifact = std::function<Result<std::string>(const std::string& sha256, const std::string& bytes)>;
// Stores artifacts as files in `directory`, named by their hash. Creates the directory if it is missing.
KeepArtifact KeepIn(std::string directory);

// The receivers of the events of a run. An empty member receives nothing.
struct RunSinks {
  AuditSink* audit = nullptr;
  EventLog* events = nullptr;
  nlohmann::json admitted_members = nlohmann::json::object();  // of the event `admitted`, besides its own
  KeepArtifact keep_artifact;                                  // empty: only hashes are reported
  std::function<void(const runtime::IsolationReport&)> on_started;
  std::function<void(const policy::PlannedCommand&, size_t index, size_t count)> on_check_started;
  std::function<void(const CheckRecord&)> on_check_finished;
  // The output of a check, as it arrives and up to its limit.
  std::function<void(OutputStream, std::string_view)> on_output;
};

struct RunOptions {
  const StopToken* stop = nullptr;  // a terminating signal cancels the run
  int64_t signal_grace_ms = 0;
  NetworkAsker* asker = nullptr;  // borrowed; for an attended plan
  bool has_budget = true;         // limits.budget_ms holds for all commands together
  // Chooses the streams of a command; empty: output is captured, and the plan provides the input.
  std::function<CommandIo(const policy::PlannedCommand&)> choose_io;
  bool described = true;  // include the policy and the decision in the result; false where no reader needs them
};

// The result of a refusal or of an infrastructure failure. No check ran.
VerificationResult RefusalResult(const Request& request, const Error& error);

// `request`, `runtimes` and the sinks must outlive the driver.
class RunDriver {
 public:
  RunDriver(const Request& request, const runtime::Runtimes& runtimes, const RunSinks& sinks, RunOptions options)
      : request_(request), runtimes_(runtimes), sinks_(sinks), options_(options) {}

  // Each fails only when the audit log cannot be written; then nothing was done.
  Result<VerificationResult> Refuse(const Error& error, const policy::Decision& decision) const;
  Result<VerificationResult> Run(Admitted admitted);
  // `members` are the members of the event `result`.
  Status End(const VerificationResult& result, const std::string& digest, nlohmann::json members) const;

 private:
  void RunChecks(const Admitted& admitted, runtime::Run& run);
  // False: the check has no outcome, and the result says why.
  bool RunCheck(const Admitted& admitted, size_t index, runtime::Run& run);
  Status CollectArtifacts(runtime::Run& run);
  void Tell(const char* event, nlohmann::json members) const;
  int64_t ElapsedMs() const;

  const Request& request_;
  const runtime::Runtimes& runtimes_;
  const RunSinks& sinks_;
  const RunOptions options_;
  int64_t start_ns_ = 0;
  VerificationResult result_;
};

}  // namespace caisson::verify
