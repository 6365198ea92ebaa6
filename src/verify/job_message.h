// The messages that a runner takes from a queue: a job, or a dead letter for a job that was given up. See
// schemas/runner_api_contract.schema.json and docs/design/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "verify/request.h"

namespace caisson::verify {

// The endings of an attempt that can be retried. A verdict is an answer and so has no entry here.
enum class RetryCause { kInfrastructureError, kLostWorker };

struct RetryPolicy {
  bool on_infrastructure_error = true;
  bool on_lost_worker = true;
  int64_t initial_delay_ms = 1'000;
  double multiplier = 2;
  int64_t max_delay_ms = 60'000;
  double jitter = 0.5;  // the random share of the delay
};

struct ApprovalReference {
  std::string approval_id;
  std::string plan_digest;
};

// Times have the format of UtcNow, except the deadline, which the caller writes.
struct Job {
  std::string message_id;  // of this delivery
  std::string job_id;      // of all attempts
  std::string tenant;
  std::string submitted_at;
  std::string idempotency_key;
  int64_t attempt = 1;
  int64_t max_attempts = 1;
  RetryPolicy retry;
  std::string not_before;  // empty: at once
  std::string deadline;    // RFC 3339; empty: none
  int64_t priority = 0;
  std::optional<ApprovalReference> approval;
  // Its attempt, idempotency key, priority and deadline equal those of the message.
  Request request;
};

struct EndedAttempt {
  int64_t attempt = 1;
  RetryCause cause = RetryCause::kInfrastructureError;
  std::string error;
  std::string started_at;
  std::string ended_at;
  std::string worker;  // empty: unknown
};

struct UnreadableMessage {
  int64_t bytes = 0;
  std::string sha256;
  std::string error;
};

enum class DeadReason { kAttemptsExhausted, kNotRetryable, kDeadlinePassed, kUnreadable };

struct DeadLetter {
  std::string message_id;
  std::string dead_at;
  DeadReason reason = DeadReason::kAttemptsExhausted;
  std::string detail;                 // empty: none
  std::vector<EndedAttempt> history;  // in order
  std::string last_result;            // a result document of status error; empty: there was none
  // Exactly one of the two is set; the second when the reason is kUnreadable.
  std::optional<Job> job;
  std::optional<UnreadableMessage> unreadable;
};

using JobMessage = std::variant<Job, DeadLetter>;

inline constexpr size_t kMaxJobMessageBytes = 2 * kMaxRequestBytes;
inline constexpr int64_t kMaxAttempts = 100;

// `text` is the whole document. Errors are ErrorKind::kInvalid and name the field by path ("request.checks[1].argv").
Result<JobMessage> ParseJobMessage(std::string_view text);

// Whether another attempt may follow this one, which ended for `cause`. The queue checks the deadline.
bool MayRetry(const Job& job, RetryCause cause);
// The delay before the next attempt. `chance` is a random number in [0, 1).
int64_t RetryDelayMs(const Job& job, double chance);

}  // namespace caisson::verify
