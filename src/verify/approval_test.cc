#include "verify/approval.h"

#include <gtest/gtest.h>

#include <string>

#include "support/corpus.h"

namespace caisson::verify {
namespace {

std::string FaultOf(const std::string& text) {
  const Result<Approval> approval = ParseApproval(text);
  if (approval) return "accepted";
  EXPECT_EQ(approval.error().kind, ErrorKind::kInvalid);
  return approval.error().message;
}

template <typename T>
T Parse(const std::string& name) {
  Result<Approval> approval = ParseApproval(testing::Document("approval", "valid", name));
  EXPECT_TRUE(approval) << approval.error().message;
  return std::get<T>(*std::move(approval));
}

TEST(ApprovalCorpus, IsJudgedAsTheSchemaJudgesIt) {
  testing::ExpectAgreement("approval", 10, 40, 10, [](const std::string& text) { return FaultOf(text) == "accepted"; });
  for (const std::string& example : testing::ExamplesOf("approval")) EXPECT_EQ(FaultOf(example), "accepted");
}

TEST(ParseApproval, ReadsARequest) {
  const auto request = Parse<ApprovalRequest>("request");
  EXPECT_EQ(request.binding.approval_id, "apr-20300131-1");
  EXPECT_EQ(request.binding.job_id, "job-20300131-17");
  EXPECT_EQ(request.binding.nonce, "7f3d0c9e5b1a48d2863e0f6a9c2b4d71");
  EXPECT_EQ(request.tenant, "course-7");
  EXPECT_EQ(request.submitter.subject, "alice@example.org");
  EXPECT_EQ(request.submitter.role, Role::kSubmitter);
  ASSERT_EQ(request.required.size(), 2u);
  EXPECT_EQ(request.required[0].by, "operator");
  EXPECT_EQ(request.required[1].kind, "limit");
  EXPECT_EQ(request.quorum, 2);
}

TEST(ParseApproval, ReadsDecisions) {
  EXPECT_EQ(Parse<ApprovalDecision>("granted").decision, Answer::kGranted);
  EXPECT_EQ(Parse<ApprovalDecision>("granted").approver.role, Role::kApprover);
  EXPECT_EQ(Parse<ApprovalDecision>("denied").reason, "the exercise needs no packages from outside");
  EXPECT_EQ(Parse<ApprovalDecision>("expired").decision, Answer::kExpired);
}

TEST(ParseApproval, NamesTheField) {
  EXPECT_EQ(FaultOf("{}"), "schema_version: required field is missing");
  EXPECT_EQ(FaultOf("[]"), "document: expected an object, found an array");
  EXPECT_EQ(FaultOf(R"({"schema_version": 2})"), "schema_version: must be at most 1");
  EXPECT_EQ(FaultOf(testing::Document("approval", "invalid", "unknown_field_in_required")),
            "required[0].severity: unknown field; known fields are by, kind, why");
  EXPECT_EQ(
      FaultOf(testing::Document("approval", "valid", "request") + std::string(kMaxApprovalBytes, ' ')).substr(0, 16),
      "document: takes ");
}

TEST(CheckDecision, TakesOnlyWhatAnswersThisRequest) {
  const auto request = Parse<ApprovalRequest>("request");
  const auto granted = Parse<ApprovalDecision>("granted");
  EXPECT_TRUE(CheckDecision(request, granted));
  EXPECT_TRUE(CheckDecision(request, Parse<ApprovalDecision>("denied")));
  EXPECT_TRUE(CheckDecision(request, Parse<ApprovalDecision>("expired")));
  const auto refuses = [&](auto change) {
    ApprovalDecision decision = granted;
    change(decision);
    const Status status = CheckDecision(request, decision);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kDenied);
  };
  refuses([](ApprovalDecision& decision) { decision.binding.approval_id = "apr-2"; });
  refuses([](ApprovalDecision& decision) { decision.binding.job_id = "job-2"; });
  refuses([](ApprovalDecision& decision) { decision.binding.plan_digest = std::string(64, 'a'); });
  refuses([](ApprovalDecision& decision) { decision.binding.nonce = std::string(32, 'a'); });
  refuses([&](ApprovalDecision& decision) { decision.decided_at = request.expires_at; });
  refuses([&](ApprovalDecision& decision) { decision.approver.subject = request.submitter.subject; });
}

TEST(CheckDecision, LetsSubmittersDenyTheirOwn) {
  const auto request = Parse<ApprovalRequest>("request");
  auto denied = Parse<ApprovalDecision>("denied");
  denied.approver.subject = request.submitter.subject;
  EXPECT_TRUE(CheckDecision(request, denied));
}

}  // namespace
}  // namespace caisson::verify
