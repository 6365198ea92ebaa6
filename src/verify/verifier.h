// Runs an admitted request and says what came of it.
#pragma once

#include <functional>
#include <string>

#include "runtime/runtime.h"
#include "verify/admission.h"
#include "verify/event_log.h"
#include "verify/result.h"

namespace caisson::verify {

struct VerifyOptions {
  int signal_fd = -1;  // a signal on it cancels
  // Keeps a collected file and gives the reference under which it will be found; empty: only its hash is reported.
  std::function<Result<std::string>(const std::string& sha256, const std::string& bytes)> keep_artifact;
  std::function<void(const policy::PlannedCommand&, size_t index, size_t count)> on_check_started;
  std::function<void(const CheckRecord&)> on_check_finished;
  // What a check writes, as it comes and as far as its limit allows; `stream` is "stdout" or "stderr".
  std::function<void(const std::string& check, const char* stream, std::string_view bytes)> on_output;
};

// Keeps artifacts as files of `directory`, which is made when it is missing, named by their hash.
std::function<Result<std::string>(const std::string& sha256, const std::string& bytes)> KeepIn(std::string directory);

// What a refusal or a failure of ours looks like as a result. Nothing ran.
VerificationResult RefusalResult(const Request& request, const Error& error);

VerificationResult Verify(const Request& request, Admitted admitted, runtime::Runtime& runtime, EventLog& events,
                          const VerifyOptions& options);

}  // namespace caisson::verify
