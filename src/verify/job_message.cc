#include "verify/job_message.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "verify/actor.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"
#include "verify/result_reader.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

Result<RetryCause> ReadCause(const json& value, const std::string& path) {
  CAISSON_TRY(const size_t choice, ReadChoice(value, path, {"infrastructure_error", "lost_worker"}));
  return static_cast<RetryCause>(choice);
}

Result<double> ReadNumberBetween(const json& value, const std::string& path, int minimum, int maximum) {
  CAISSON_TRY(const double number, ReadNumber(value, path));
  if (number >= minimum && number <= maximum) return number;
  return FieldError(path, "must be from " + std::to_string(minimum) + " to " + std::to_string(maximum));
}

Status ReadRetryCauses(const json& value, const std::string& path, RetryPolicy& policy) {
  policy.on_infrastructure_error = policy.on_lost_worker = false;
  CAISSON_TRY_VOID(ExpectArray(value, path, 1, 2));
  for (size_t i = 0; i < value.size(); ++i) {
    CAISSON_TRY(const RetryCause cause, ReadCause(value[i], PathOfElement(path, i)));
    bool& listed = cause == RetryCause::kInfrastructureError ? policy.on_infrastructure_error : policy.on_lost_worker;
    if (listed) return FieldError(PathOfElement(path, i), "is listed twice");
    listed = true;
  }
  return {};
}

Result<RetryPolicy> ReadRetry(const json& value, const std::string& path) {
  constexpr int64_t kHourMs = 3'600'000;
  CAISSON_TRY_VOID(ExpectObject(value, path, {"on", "initial_delay_ms", "multiplier", "max_delay_ms", "jitter"}));
  RetryPolicy policy;
  if (const json* causes = FindMember(value, "on")) {
    CAISSON_TRY_VOID(ReadRetryCauses(*causes, PathOfMember(path, "on"), policy));
  }
  CAISSON_TRY_VOID(ReadOptional(value, path, "initial_delay_ms", policy.initial_delay_ms, ReadInteger, 0, kHourMs));
  CAISSON_TRY_VOID(ReadOptional(value, path, "multiplier", policy.multiplier, ReadNumberBetween, 1, 10));
  CAISSON_TRY_VOID(ReadOptional(value, path, "max_delay_ms", policy.max_delay_ms, ReadInteger, 0, 24 * kHourMs));
  CAISSON_TRY_VOID(ReadOptional(value, path, "jitter", policy.jitter, ReadNumberBetween, 0, 1));
  return policy;
}

Result<ApprovalReference> ReadApprovalReference(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"approval_id", "plan_digest"}));
  ApprovalReference reference;
  CAISSON_TRY(reference.approval_id, ReadRequired(value, path, "approval_id", ReadWord, "._-", 128));
  CAISSON_TRY(reference.plan_digest, ReadRequired(value, path, "plan_digest", ReadSha256));
  return reference;
}

Status ReadRequestOf(Job& job, const json& value, const std::string& path) {
  CAISSON_TRY(job.request, ReadRequest(value, path));
  CAISSON_TRY_VOID(RequireMember(value, path, "request_id"));  // a generated id would differ in each attempt
  if (!job.request.idempotency_key.empty() && job.request.idempotency_key != job.idempotency_key) {
    return FieldError(PathOfMember(path, "idempotency_key"), "differs from the message's own");
  }
  job.request.attempt = job.attempt;
  job.request.idempotency_key = job.idempotency_key;
  job.request.priority = job.priority;
  job.request.deadline = job.deadline;
  return {};
}

Result<Job> ReadJob(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadEnvelope(value, path, {"job"}));
  CAISSON_TRY_VOID(
      ExpectObject(value, path,
                   {"schema_version", "kind", "message_id", "job_id", "tenant", "submitted_at", "idempotency_key",
                    "attempt", "max_attempts", "retry", "not_before", "deadline", "priority", "approval", "request"}));
  Job job;
  CAISSON_TRY(job.message_id, ReadRequired(value, path, "message_id", ReadWord, "._-", 128));
  CAISSON_TRY(job.job_id, ReadRequired(value, path, "job_id", ReadWord, "._-", 128));
  CAISSON_TRY(job.tenant, ReadRequired(value, path, "tenant", ReadWord, "._-", 64));
  CAISSON_TRY(job.submitted_at, ReadRequired(value, path, "submitted_at", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(job.idempotency_key, ReadRequired(value, path, "idempotency_key", ReadText, FaultInIdempotencyKey));
  CAISSON_TRY(job.attempt, ReadRequired(value, path, "attempt", ReadInteger, 1, kMaxAttempts));
  CAISSON_TRY(job.max_attempts, ReadRequired(value, path, "max_attempts", ReadInteger, 1, kMaxAttempts));
  if (job.attempt > job.max_attempts) {
    return FieldError(PathOfMember(path, "attempt"), "is beyond max_attempts, " + std::to_string(job.max_attempts));
  }
  CAISSON_TRY_VOID(ReadOptional(value, path, "retry", job.retry, ReadRetry));
  CAISSON_TRY_VOID(ReadOptional(value, path, "not_before", job.not_before, ReadText, FaultInUtcTimestamp));
  CAISSON_TRY_VOID(ReadOptional(value, path, "deadline", job.deadline, ReadText, FaultInTimestamp));
  CAISSON_TRY_VOID(ReadOptional(value, path, "priority", job.priority, ReadInteger, -kMaxPriority, kMaxPriority));
  CAISSON_TRY_VOID(ReadOptional(value, path, "approval", job.approval, ReadApprovalReference));
  CAISSON_TRY(const json* request, RequireMember(value, path, "request"));
  CAISSON_TRY_VOID(ReadRequestOf(job, *request, PathOfMember(path, "request")));
  return job;
}

Result<EndedAttempt> ReadEndedAttempt(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"attempt", "cause", "error", "started_at", "ended_at", "worker"}));
  EndedAttempt ended;
  CAISSON_TRY(ended.attempt, ReadRequired(value, path, "attempt", ReadInteger, 1, kMaxAttempts));
  CAISSON_TRY(ended.cause, ReadRequired(value, path, "cause", ReadCause));
  CAISSON_TRY(ended.error, ReadRequired(value, path, "error", ReadSentence, kMaxSentenceCharacters));
  CAISSON_TRY(ended.started_at, ReadRequired(value, path, "started_at", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(ended.ended_at, ReadRequired(value, path, "ended_at", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY_VOID(ReadOptional(value, path, "worker", ended.worker, ReadWord, "._-", 128));
  return ended;
}

Result<std::vector<EndedAttempt>> ReadHistory(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 0, kMaxAttempts));
  std::vector<EndedAttempt> history;
  for (size_t i = 0; i < value.size(); ++i) {
    CAISSON_TRY(EndedAttempt ended, ReadEndedAttempt(value[i], PathOfElement(path, i)));
    if (!history.empty() && ended.attempt <= history.back().attempt) {
      return FieldError(PathOfElement(path, i), "attempts are not in order");
    }
    history.push_back(std::move(ended));
  }
  return history;
}

Result<UnreadableMessage> ReadUnreadable(const json& value, const std::string& path) {
  constexpr int64_t kMaxExact = (int64_t{1} << 53) - 1;  // the largest integer that every JSON reader represents
  CAISSON_TRY_VOID(ExpectObject(value, path, {"bytes", "sha256", "error"}));
  UnreadableMessage message;
  CAISSON_TRY(message.bytes, ReadRequired(value, path, "bytes", ReadInteger, 0, kMaxExact));
  CAISSON_TRY(message.sha256, ReadRequired(value, path, "sha256", ReadSha256));
  CAISSON_TRY(message.error, ReadRequired(value, path, "error", ReadSentence, kMaxSentenceCharacters));
  return message;
}

Result<DeadReason> ReadReason(const json& value, const std::string& path) {
  CAISSON_TRY(const size_t choice,
              ReadChoice(value, path, {"attempts_exhausted", "not_retryable", "deadline_passed", "unreadable"}));
  return static_cast<DeadReason>(choice);
}

Result<std::string> ReadLastResult(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectResult(value, path));
  if (value["status"] != "error") {
    return FieldError(PathOfMember(path, "status"), "must be \"error\": any other is an answer");
  }
  return value.dump();
}

// The members of a dead letter depend on whether its job could be read.
Status CheckMembers(const DeadLetter& letter) {
  if (letter.reason == DeadReason::kUnreadable) {
    if (!letter.unreadable) return FieldError("unreadable", "required field is missing");
    if (letter.job) return FieldError("job", "an unreadable message holds no job");
    if (!letter.last_result.empty()) return FieldError("last_result", "an unreadable message was not run");
    if (!letter.history.empty()) return FieldError("history", "an unreadable message was not run");
    return {};
  }
  if (!letter.job) return FieldError("job", "required field is missing");
  if (letter.unreadable) return FieldError("unreadable", "belongs to the reason \"unreadable\"");
  if (letter.history.empty() && letter.reason != DeadReason::kDeadlinePassed) {
    return FieldError("history", "must not be empty");
  }
  if (!letter.history.empty() && letter.history.back().attempt > letter.job->attempt) {
    return FieldError("history", "has attempts that the job did not come to");
  }
  return {};
}

Result<DeadLetter> ReadDeadLetter(const json& root) {
  CAISSON_TRY_VOID(ExpectObject(root, "",
                                {"schema_version", "kind", "message_id", "dead_at", "reason", "detail", "history",
                                 "last_result", "job", "unreadable"}));
  DeadLetter letter;
  CAISSON_TRY(letter.message_id, ReadRequired(root, "", "message_id", ReadWord, "._-", 128));
  CAISSON_TRY(letter.dead_at, ReadRequired(root, "", "dead_at", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(letter.reason, ReadRequired(root, "", "reason", ReadReason));
  CAISSON_TRY_VOID(ReadOptional(root, "", "detail", letter.detail, ReadSentence, kMaxSentenceCharacters));
  CAISSON_TRY(letter.history, ReadRequired(root, "", "history", ReadHistory));
  CAISSON_TRY_VOID(ReadOptional(root, "", "last_result", letter.last_result, ReadLastResult));
  CAISSON_TRY_VOID(ReadOptional(root, "", "job", letter.job, ReadJob));
  CAISSON_TRY_VOID(ReadOptional(root, "", "unreadable", letter.unreadable, ReadUnreadable));
  CAISSON_TRY_VOID(CheckMembers(letter));
  return letter;
}

}  // namespace

Result<JobMessage> ParseJobMessage(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxJobMessageBytes;
  CAISSON_TRY(const json root, ReadJson(text, bounds));
  CAISSON_TRY(const size_t kind, ReadEnvelope(root, "", {"job", "dead_letter"}));
  if (kind == 0) {
    CAISSON_TRY(Job job, ReadJob(root, ""));
    return JobMessage(std::move(job));
  }
  CAISSON_TRY(DeadLetter letter, ReadDeadLetter(root));
  return JobMessage(std::move(letter));
}

bool MayRetry(const Job& job, RetryCause cause) {
  const bool listed =
      cause == RetryCause::kInfrastructureError ? job.retry.on_infrastructure_error : job.retry.on_lost_worker;
  return listed && job.attempt < job.max_attempts;
}

int64_t RetryDelayMs(const Job& job, double chance) {
  const RetryPolicy& retry = job.retry;
  const double grown =
      static_cast<double>(retry.initial_delay_ms) * std::pow(retry.multiplier, static_cast<double>(job.attempt - 1));
  const double bounded = std::min(grown, static_cast<double>(retry.max_delay_ms));
  return static_cast<int64_t>(bounded * (1 - retry.jitter * chance));
}

}  // namespace caisson::verify
