#include "verify/job_message.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/corpus.h"
#include "verify/result.h"
#include "verify/result_reader.h"

namespace caisson::verify {
namespace {

std::string FaultOf(const std::string& text) {
  const Result<JobMessage> message = ParseJobMessage(text);
  if (message) return "accepted";
  EXPECT_EQ(message.error().kind, ErrorKind::kInvalid);
  return message.error().message;
}

std::string FaultIn(const char* kind, const std::string& name) {
  return FaultOf(testing::Document("runner_api_contract", kind, name));
}

template <typename T>
T Parse(const std::string& name) {
  Result<JobMessage> message = ParseJobMessage(testing::Document("runner_api_contract", "valid", name));
  EXPECT_TRUE(message) << message.error().message;
  return std::get<T>(*std::move(message));
}

TEST(JobMessageCorpus, IsJudgedAsTheSchemaJudgesIt) {
  testing::ExpectAgreement("runner_api_contract", 10, 40, 15,
                           [](const std::string& text) { return FaultOf(text) == "accepted"; });
  for (const std::string& example : testing::ExamplesOf("runner_api_contract")) EXPECT_EQ(FaultOf(example), "accepted");
}

TEST(ParseJobMessage, ReadsAJob) {
  const Job job = Parse<Job>("job_everything");
  EXPECT_EQ(job.message_id, "msg-2");
  EXPECT_EQ(job.job_id, "job-20300131-17");
  EXPECT_EQ(job.tenant, "course-7");
  EXPECT_EQ(job.submitted_at, "2030-01-31T12:00:00.000Z");
  EXPECT_EQ(job.idempotency_key, "submission-4711");
  EXPECT_EQ(job.attempt, 2);
  EXPECT_EQ(job.max_attempts, 3);
  EXPECT_EQ(job.retry.initial_delay_ms, 500);
  EXPECT_EQ(job.retry.multiplier, 2.5);
  EXPECT_EQ(job.retry.max_delay_ms, 30'000);
  EXPECT_EQ(job.retry.jitter, 0.2);
  EXPECT_EQ(job.not_before, "2030-01-31T12:00:10.250Z");
  EXPECT_EQ(job.deadline, "2030-01-31T14:00:00+01:00");
  EXPECT_EQ(job.priority, 10);
  ASSERT_TRUE(job.approval);
  EXPECT_EQ(job.approval->approval_id, "apr-20300131-1");
  EXPECT_EQ(job.request.request_id, "job-17.retry_2");
  EXPECT_EQ(job.request.checks.size(), 2u);
}

TEST(ParseJobMessage, TheMessageWinsOverItsRequest) {
  const Job job = Parse<Job>("job_request_says_otherwise");
  EXPECT_EQ(job.request.attempt, 1);
  EXPECT_EQ(job.request.priority, 5);
  EXPECT_EQ(job.request.deadline, "");
  EXPECT_EQ(job.request.idempotency_key, "submission-4711");
}

TEST(ParseJobMessage, ReadsADeadLetter) {
  const auto letter = Parse<DeadLetter>("dead_letter_exhausted");
  EXPECT_EQ(letter.reason, DeadReason::kAttemptsExhausted);
  ASSERT_EQ(letter.history.size(), 2u);
  EXPECT_EQ(letter.history[0].cause, RetryCause::kLostWorker);
  EXPECT_EQ(letter.history[1].cause, RetryCause::kInfrastructureError);
  EXPECT_EQ(letter.history[1].worker, "runner-1");
  EXPECT_EQ(nlohmann::json::parse(letter.last_result).at("status"), "error");
  ASSERT_TRUE(letter.job);
  EXPECT_EQ(letter.job->request.request_id, "req-4711");
  EXPECT_FALSE(letter.unreadable);
  const auto poison = Parse<DeadLetter>("dead_letter_unreadable");
  EXPECT_EQ(poison.reason, DeadReason::kUnreadable);
  ASSERT_TRUE(poison.unreadable);
  EXPECT_EQ(poison.unreadable->bytes, 2);
  EXPECT_FALSE(poison.job);
}

TEST(ParseJobMessage, NamesTheFieldByItsPathInTheMessage) {
  EXPECT_EQ(FaultIn("invalid", "request_with_bad_check"), "request.checks[0].argv: must not be empty");
  EXPECT_EQ(FaultIn("invalid", "unknown_field"), "retrys: unknown field; did you mean \"retry\"?");
  EXPECT_EQ(FaultIn("invalid", "dead_letter_job_invalid"), "job.attempt: must be at least 1");
  EXPECT_EQ(FaultIn("invalid", "request_without_id"), "request.request_id: required field is missing");
  EXPECT_EQ(FaultIn("invalid", "retry_on_a_verdict"),
            "retry.on[0]: \"check_failed\" is not one of infrastructure_error, lost_worker");
  EXPECT_EQ(FaultIn("invalid", "last_result_a_pass"), "last_result.status: must be \"error\": any other is an answer");
  EXPECT_EQ(FaultIn("invalid", "last_result_check_without_argv"), "last_result.checks[0].argv: must not be empty");
  EXPECT_EQ(FaultIn("invalid", "schema_version_two"), "schema_version: must be at most 1");
  EXPECT_EQ(FaultIn("invalid_parser_only", "attempt_beyond_max_attempts"), "attempt: is beyond max_attempts, 3");
  EXPECT_EQ(FaultIn("invalid_parser_only", "history_out_of_order"), "history[1]: attempts are not in order");
}

TEST(MayRetry, OnlyWhatIsListedAndNotForEver) {
  Job job;
  job.max_attempts = 2;
  EXPECT_TRUE(MayRetry(job, RetryCause::kInfrastructureError));
  EXPECT_TRUE(MayRetry(job, RetryCause::kLostWorker));
  job.retry.on_lost_worker = false;
  EXPECT_TRUE(MayRetry(job, RetryCause::kInfrastructureError));
  EXPECT_FALSE(MayRetry(job, RetryCause::kLostWorker));
  job.attempt = 2;
  EXPECT_FALSE(MayRetry(job, RetryCause::kInfrastructureError));
}

TEST(RetryDelayMs, GrowsToItsBoundLessChance) {
  Job job;
  job.max_attempts = 100;
  job.retry = {true, true, 1'000, 3, 20'000, 0.5};
  const auto delay = [&](int64_t attempt, double chance) {
    job.attempt = attempt;
    return RetryDelayMs(job, chance);
  };
  EXPECT_EQ(delay(1, 0), 1'000);
  EXPECT_EQ(delay(2, 0), 3'000);
  EXPECT_EQ(delay(3, 0), 9'000);
  EXPECT_EQ(delay(4, 0), 20'000);
  EXPECT_EQ(delay(3, 0.5), 6'750);
  EXPECT_GE(delay(3, 0.999999), 4'500);
  job.retry = {true, true, 3'600'000, 10, 86'400'000, 1};
  EXPECT_EQ(delay(100, 0), 86'400'000);  // 10^99 hours, without overflow in between
  job.retry = {true, true, 0, 10, 86'400'000, 0};
  EXPECT_EQ(delay(100, 0), 0);
}

TEST(ExpectResult, TakesWhatTheProgramWrites) {
  VerificationResult result;
  result.request_id = "req-1";
  result.isolation = runtime::IsolationReport();
  result.isolation->seccomp_sha256 = std::string(64, 'a');
  CheckRecord check;
  check.name = check.tier = "run";
  check.argv = {"true"};
  Violation violation;
  violation.reason = "forbidden";
  violation.evidence = {{"syscall", "bpf"}, {"number", int64_t{321}}};
  check.outcome.violations = {violation};
  result.checks = {check};
  result.artifacts = {{"/scratch/a", 1, std::string(64, 'b'), "b"}};
  result.skipped_checks = {{"test", "test", "an earlier check failed"}};
  const Status status = ExpectResult(ToJson(result), "");
  EXPECT_TRUE(status) << status.error().message;
}

}  // namespace
}  // namespace caisson::verify
