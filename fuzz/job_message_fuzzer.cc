// A queue may hold any bytes. None may crash the parser, and an accepted message keeps the promises of job_message.h.
#include <string_view>

#include "fault.h"
#include "target.h"
#include "verify/job_message.h"

namespace {

using caisson::verify::DeadLetter;
using caisson::verify::DeadReason;
using caisson::verify::Job;
using caisson::verify::RetryCause;

void CheckJob(const Job& job) {
  CAISSON_CHECK(!job.message_id.empty() && !job.job_id.empty() && !job.tenant.empty() && !job.idempotency_key.empty());
  CAISSON_CHECK(job.attempt >= 1 && job.attempt <= job.max_attempts &&
                job.max_attempts <= caisson::verify::kMaxAttempts);
  CAISSON_CHECK(job.retry.on_infrastructure_error || job.retry.on_lost_worker);
  CAISSON_CHECK(job.request.attempt == job.attempt && job.request.idempotency_key == job.idempotency_key &&
                job.request.priority == job.priority && job.request.deadline == job.deadline);
  CAISSON_CHECK(caisson::verify::IsValidRequestId(job.request.request_id));
  for (const double chance : {0.0, 0.5, 0.999}) {
    const int64_t delay = caisson::verify::RetryDelayMs(job, chance);
    CAISSON_CHECK(delay >= 0 && delay <= job.retry.max_delay_ms);
  }
  if (job.attempt == job.max_attempts) CAISSON_CHECK(!caisson::verify::MayRetry(job, RetryCause::kLostWorker));
}

void CheckDeadLetter(const DeadLetter& letter) {
  const bool unreadable = letter.reason == DeadReason::kUnreadable;
  CAISSON_CHECK(letter.job.has_value() != unreadable && letter.unreadable.has_value() == unreadable);
  CAISSON_CHECK(!unreadable || (letter.history.empty() && letter.last_result.empty()));
  if (letter.job) CheckJob(*letter.job);
  int64_t last = 0;
  for (const auto& ended : letter.history) {
    CAISSON_CHECK(ended.attempt > last && ended.attempt <= letter.job->attempt && !ended.error.empty());
    last = ended.attempt;
  }
}

}  // namespace

CAISSON_FUZZ_TARGET(job_message) {
  const auto message = caisson::verify::ParseJobMessage({reinterpret_cast<const char*>(bytes), size});
  if (!message) {
    CheckFault(message.error());
  } else if (const auto* job = std::get_if<Job>(&*message)) {
    CheckJob(*job);
  } else {
    CheckDeadLetter(std::get<DeadLetter>(*message));
  }
  return 0;
}
