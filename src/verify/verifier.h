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
  int signal_fd = -1;         // a signal on it cancels
  std::string artifacts_dir;  // where collected files are kept, by hash; empty: only their hashes are
  std::function<void(const policy::PlannedCommand&, size_t index, size_t count)> on_check_started;
  std::function<void(const CheckRecord&)> on_check_finished;
};

// What a refusal or a failure of ours looks like as a result. Nothing ran.
VerificationResult RefusalResult(const Request& request, const Error& error);

VerificationResult Verify(const Request& request, Admitted admitted, runtime::Runtime& runtime, EventLog& events,
                          const VerifyOptions& options);

}  // namespace caisson::verify
