#include "attest/statement.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/corpus.h"
#include "verify/digest.h"

namespace caisson::attest {
namespace {

using nlohmann::json;

constexpr char kTime[] = "2030-01-31T12:00:00.000Z";

json AResult() {
  return json::parse(R"({"schema_version": 1, "request_id": "req-1", "attempt": 2, "mode": "balanced",
    "status": "fail", "tier": "run", "failure_class": "CheckFailed", "exit_code": 3, "duration_ms": 42, "stdout": "é",
    "stderr": "", "artifacts": [], "skipped_checks": [], "terminal_event": "check_failed",
    "isolation": {"runtime": "native", "degraded": []},
    "policy_digest": "823412d1eacb67956220e532959f0104603057c88704863ca38e7cd188fda812",
    "source_digest": "sha256:41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d",
    "host": {"kernel": "6.1.0", "caisson_version": "0.1.0"}})");
}

std::string FaultOf(const std::string& text) {
  const Result<Statement> statement = ParseStatement(text);
  if (statement) return "accepted";
  EXPECT_EQ(statement.error().kind, ErrorKind::kInvalid);
  return statement.error().message;
}

std::string FaultInResult(const json& result) {
  const Result<Statement> statement = StatementOf(result.dump(), "", kTime);
  return statement ? "accepted" : statement.error().message;
}

TEST(StatementCorpus, IsJudgedAsTheSchemaJudgesIt) {
  testing::ExpectAgreement("attestation", 7, 60, 12,
                           [](const std::string& text) { return FaultOf(text) == "accepted"; });
}

TEST(Statement, ExamplesOfTheSchemaAreReadAndWrittenAlike) {
  for (const std::string& example : testing::ExamplesOf("attestation")) {
    const Result<Statement> statement = ParseStatement(example);
    ASSERT_TRUE(statement) << statement.error().message;
    EXPECT_EQ(Canonical(*statement), example);
  }
}

TEST(StatementOf, BindsWhatTheResultSays) {
  const std::string text = AResult().dump(2) + "\n";
  const Result<Statement> statement = StatementOf(text, "job-7", kTime);
  ASSERT_TRUE(statement) << statement.error().message;
  EXPECT_EQ(statement->request_id, "req-1");
  EXPECT_EQ(statement->job_id, "job-7");
  EXPECT_EQ(statement->attempt, 2);
  EXPECT_EQ(statement->status, verify::VerdictStatus::kFail);
  EXPECT_EQ(statement->failure_class, "CheckFailed");
  EXPECT_EQ(statement->tier, "run");
  EXPECT_EQ(statement->time, kTime);
  EXPECT_EQ(statement->kernel, "6.1.0");
  EXPECT_EQ(statement->caisson_version, "0.1.0");
  EXPECT_EQ(statement->digests.source, "41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d");
  EXPECT_EQ(statement->digests.policy, "823412d1eacb67956220e532959f0104603057c88704863ca38e7cd188fda812");
  EXPECT_EQ(statement->digests.isolation, verify::Sha256Hex(R"({"degraded":[],"runtime":"native"})"));
  EXPECT_EQ(statement->digests.verdict,
            verify::Sha256Hex(R"({"exit_code":3,"failure_class":"CheckFailed","status":"fail",)"
                              R"("terminal_event":"check_failed","tier":"run"})"));
  EXPECT_EQ(statement->digests.result, verify::Sha256Hex(text));
}

TEST(StatementOf, VerdictDigestsCompareVerdicts) {
  json slower = AResult(), other = AResult();
  slower["duration_ms"] = 4200;
  slower["stdout"] = "more";
  other["exit_code"] = 4;
  const auto digest = [](const json& result) { return StatementOf(result.dump(), "", kTime)->digests.verdict; };
  EXPECT_EQ(digest(slower), digest(AResult()));
  EXPECT_NE(digest(other), digest(AResult()));
}

TEST(StatementOf, WithoutASourceIsAboutTheResult) {
  json result = AResult();
  result.update({{"status", "rejected"},
                 {"failure_class", "PolicyRejected"},
                 {"terminal_event", "rejected"},
                 {"tier", nullptr},
                 {"source_digest", nullptr}});
  const Result<Statement> statement = StatementOf(result.dump(), "", kTime);
  ASSERT_TRUE(statement) << statement.error().message;
  const json document = json::parse(Canonical(*statement));
  EXPECT_EQ(document["subject"][0]["name"], "result");
  EXPECT_EQ(document["subject"][0]["digest"]["sha256"], statement->digests.result);
}

TEST(StatementOf, TakesResultsOnly) {
  EXPECT_EQ(FaultInResult(AResult()), "accepted");
  EXPECT_EQ(FaultInResult(json::object()), "request_id: required field is missing");
  json result = AResult();
  result.erase("host");
  EXPECT_EQ(FaultInResult(result), "host: required field is missing");
  result = AResult();
  result["status"] = "pass";
  EXPECT_EQ(FaultInResult(result), "document: status, failure_class and terminal_event contradict one another");
  result = AResult();
  result["host"]["kernel"] = "6.1\n";
  EXPECT_EQ(FaultInResult(result), "predicate.host.kernel: must not contain control characters");
  EXPECT_FALSE(StatementOf(AResult().dump(), "a job", kTime));
  EXPECT_FALSE(StatementOf(AResult().dump(), "", "now"));
}

TEST(ParseStatement, NamesTheField) {
  EXPECT_EQ(FaultOf("{}"), "_type: required field is missing");
  const auto fault = [](const char* kind, const char* name) {
    return FaultOf(testing::Document("attestation", kind, name));
  };
  EXPECT_EQ(fault("invalid", "pass_with_class"), "predicate.failure_class: contradicts the status pass");
  EXPECT_EQ(fault("invalid", "predicate_type_of_version_2"),
            "predicateType: \"urn:caisson:predicate:verification:2\" is not one of "
            "urn:caisson:predicate:verification:1");
  EXPECT_EQ(fault("invalid", "digest_source_missing"), "predicate.digests.source: required field is missing");
  EXPECT_EQ(fault("invalid_parser_only", "subject_of_another_source"),
            "subject[0]: is not what predicate.digests says it is");
}

}  // namespace
}  // namespace caisson::attest
