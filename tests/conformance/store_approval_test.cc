// Tests the promises of store/store.h about approvals.
#include <atomic>

#include "conformance/store_fixture.h"

namespace caisson::store::testing {
namespace {

ApprovalAnswer Grant(const std::string& approver, int64_t time_ms = kNow) { return {approver, true, "fine", time_ms}; }
ApprovalAnswer Deny(const std::string& approver) { return {approver, false, "not on my watch", kNow}; }
End Denied() { return MakeEnd(JobState::kRejected); }

class Approving : public StoreTest {
 protected:
  // Grants the approval and claims the job again.
  Job ClaimGranted(const std::string& approval_id) {
    EXPECT_OK(store_->AnswerApproval(approval_id, Grant("ada"), Denied(), {}));
    return ClaimOne();
  }
};

TEST_P(Approving, AQuestionIsKeptAsItWasAsked) {
  const Job job = SubmitAwaiting("j1", "a1", 2);
  EXPECT_EQ(Find("j1").state, JobState::kAwaitingApproval);
  EXPECT_EQ(Find("j1").approval_id, "a1");
  EXPECT_EQ(Find("j1").lease_token, "");
  EXPECT_EQ(Claim().size(), 0U);
  EXPECT_ERROR(kConflict, store_->Finish(LeaseOf(job), MakeEnd()));
  const Result<Approval> found = store_->FindApproval("a1");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->job_id, "j1");
  EXPECT_EQ(found->tenant, "acme");
  EXPECT_EQ(found->document, R"({"question": "network?"})");
  EXPECT_EQ(found->plan_digest, "plan");
  EXPECT_EQ(found->quorum, 2);
  EXPECT_EQ(found->requested_ms, kNow);
  EXPECT_EQ(found->expires_ms, kNow + 60'000);
  EXPECT_EQ(found->state, ApprovalState::kPending);
  EXPECT_FALSE(found->used);
  EXPECT_ERROR(kNotFound, store_->FindApproval("nobody"));
}

TEST_P(Approving, TheLastGrantOfTheQuorumQueuesTheJob) {
  SubmitAwaiting("j1", "a1", 2);
  Result<Approval> answered = store_->AnswerApproval("a1", Grant("ada"), Denied(), {MakeEvent("granted")});
  ASSERT_TRUE(answered) << answered.error().message;
  EXPECT_EQ(answered->state, ApprovalState::kPending);
  EXPECT_EQ(Find("j1").state, JobState::kAwaitingApproval);
  EXPECT_ERROR(kConflict, store_->AnswerApproval("a1", Grant("ada"), Denied(), {MakeEvent("granted")}));
  answered = store_->AnswerApproval("a1", Grant("bob"), Denied(), {MakeEvent("granted")});
  ASSERT_TRUE(answered) << answered.error().message;
  EXPECT_EQ(answered->state, ApprovalState::kGranted);
  ASSERT_EQ(answered->answers.size(), 2U);
  EXPECT_EQ(answered->answers[1].approver, "bob");
  EXPECT_ERROR(kConflict, store_->AnswerApproval("a1", Deny("eve"), Denied(), {MakeEvent("denied")}));
  const Approval found = Must(store_->FindApproval("a1"));
  EXPECT_EQ(found.state, ApprovalState::kGranted);
  ASSERT_EQ(found.answers.size(), 2U);
  EXPECT_EQ(found.answers[0].approver, "ada");
  EXPECT_TRUE(found.answers[0].granted);
  EXPECT_EQ(found.answers[0].reason, "fine");
  const Job job = ClaimOne();
  EXPECT_EQ(job.id, "j1");
  EXPECT_EQ(job.approval_id, "a1");
  EXPECT_EQ(EventTypes("j1"), (std::vector<std::string>{"submitted", "asked", "granted", "granted"}));
  ExpectCountsAgree();
}

TEST_P(Approving, ADenialEndsTheJob) {
  SubmitAwaiting("j1", "a1", 2);
  ASSERT_OK(store_->AnswerApproval("a1", Grant("ada"), Denied(), {}));
  const Result<Approval> answered = store_->AnswerApproval("a1", Deny("bob"), Denied(), {MakeEvent("denied")});
  ASSERT_TRUE(answered) << answered.error().message;
  EXPECT_EQ(answered->state, ApprovalState::kDenied);
  EXPECT_EQ(Must(store_->FindApproval("a1")).state, ApprovalState::kDenied);
  EXPECT_EQ(Find("j1").state, JobState::kRejected);
  EXPECT_EQ(EventTypes("j1"), (std::vector<std::string>{"submitted", "asked", "denied", "ended"}));
  EXPECT_ERROR(kConflict, store_->AnswerApproval("a1", Grant("eve"), Denied(), {}));
  EXPECT_ERROR(kNotFound, store_->AnswerApproval("nobody", Grant("eve"), Denied(), {}));
  ExpectCountsAgree();
}

TEST_P(Approving, NobodyAnswersInTime) {
  SubmitAwaiting("j1", "a1");
  EXPECT_EQ(Must(store_->ExpiredApprovals(kNow + 59'999, 10)).size(), 0U);
  const Result<std::vector<Approval>> expired = store_->ExpiredApprovals(kNow + 60'000, 10);
  ASSERT_EQ(expired->size(), 1U);
  EXPECT_EQ(expired->front().id, "a1");
  EXPECT_ERROR(kConflict, store_->AnswerApproval("a1", Grant("ada", kNow + 60'000), Denied(), {}));
  ASSERT_OK(store_->ExpireApproval("a1", Denied()));
  EXPECT_EQ(Find("j1").state, JobState::kRejected);
  EXPECT_EQ(Must(store_->FindApproval("a1")).state, ApprovalState::kExpired);
  EXPECT_ERROR(kConflict, store_->ExpireApproval("a1", Denied()));
  EXPECT_ERROR(kConflict, store_->AnswerApproval("a1", Grant("ada"), Denied(), {}));
  EXPECT_EQ(Must(store_->ExpiredApprovals(kNow + 60'000, 10)).size(), 0U);
  ExpectCountsAgree();
}

TEST_P(Approving, ARunUsesItOnce) {
  SubmitAwaiting("j1", "a1");
  EXPECT_ERROR(kConflict, store_->UseApproval({"j1", "guess"}, "a1"));
  Job job = ClaimGranted("a1");
  EXPECT_ERROR(kConflict, store_->UseApproval(LeaseOf(job), "a2"));
  ASSERT_OK(store_->UseApproval(LeaseOf(job), "a1"));
  EXPECT_TRUE(Must(store_->FindApproval("a1")).used);
  EXPECT_ERROR(kConflict, store_->UseApproval(LeaseOf(job), "a1"));
  ASSERT_OK(store_->Retry(LeaseOf(job), MakeAttempt(1), 0, {}));
  job = ClaimOne();
  EXPECT_ERROR(kConflict, store_->UseApproval(LeaseOf(job), "a1"));
  // A second request for approval creates a new approval.
  ASSERT_OK(store_->AwaitApproval(LeaseOf(job), MakeApproval("a2", job), {}));
  job = ClaimGranted("a2");
  SubmitNew("j2");
  const Job other = ClaimOne();
  EXPECT_ERROR(kConflict, store_->UseApproval(LeaseOf(other), "a2"));
  EXPECT_OK(store_->UseApproval(LeaseOf(job), "a2"));
}

TEST_P(Approving, ListsAreByTenantAndState) {
  SubmitAwaiting("j1", "a1");
  SubmitNew("j2", "globex");
  const Job other = ClaimOne();
  Approval later = MakeApproval("a2", other);
  later.requested_ms = kNow + 1;
  ASSERT_OK(store_->AwaitApproval(LeaseOf(other), later, {}));
  ASSERT_OK(store_->AnswerApproval("a1", Deny("ada"), Denied(), {}));
  const auto list = [&](const std::string& tenant, std::optional<ApprovalState> state, int64_t limit) {
    const Result<std::vector<Approval>> approvals = store_->ListApprovals(tenant, state, limit);
    EXPECT_TRUE(approvals) << approvals.error().message;
    std::string ids;
    for (const Approval& approval : *approvals) ids += approval.id;
    return ids;
  };
  EXPECT_EQ(list("", std::nullopt, 10), "a2a1");
  EXPECT_EQ(list("", std::nullopt, 1), "a2");
  EXPECT_EQ(list("acme", std::nullopt, 10), "a1");
  EXPECT_EQ(list("", ApprovalState::kPending, 10), "a2");
  EXPECT_EQ(list("acme", ApprovalState::kPending, 10), "");
  EXPECT_EQ(Must(store_->ListApprovals("acme", std::nullopt, 10)).front().answers.size(), 1U);
}

// When several decisions arrive at the same time, exactly one counts, and it determines the state of the job.
TEST_P(Approving, OneOfSeveralDecisionsCounts) {
  for (int round = 0; round < 12; ++round) {
    const std::string job = "j" + std::to_string(100 + round);
    const std::string approval = "a" + std::to_string(round);
    SubmitAwaiting(job, approval);
    std::atomic<int> granted{0};
    std::atomic<int> denied{0};
    std::atomic<int> expired{0};
    std::atomic<int> cancelled{0};
    InThreads(4, [&](int who) {
      switch (who) {
        case 0:
          granted += store_->AnswerApproval(approval, Grant("ada"), Denied(), {}).has_value() ? 1 : 0;
          break;
        case 1:
          denied += store_->AnswerApproval(approval, Deny("bob"), Denied(), {}).has_value() ? 1 : 0;
          break;
        case 2:
          expired += store_->ExpireApproval(approval, MakeEnd(JobState::kFailed)).has_value() ? 1 : 0;
          break;
        default:
          cancelled += store_->Cancel(job, "", MakeEnd(JobState::kCancelled)).has_value() ? 1 : 0;
      }
    });
    // A granted job is queued, so it can still be cancelled afterwards.
    EXPECT_EQ(granted + denied + expired + (granted == 0 ? cancelled.load() : 0), 1);
    const ApprovalState state = Must(store_->FindApproval(approval)).state;
    const JobState job_state = Find(job).state;
    if (granted == 1) {
      EXPECT_EQ(state, ApprovalState::kGranted);
      EXPECT_EQ(job_state, cancelled == 1 ? JobState::kCancelled : JobState::kQueued);
    } else if (denied == 1) {
      EXPECT_EQ(state, ApprovalState::kDenied);
      EXPECT_EQ(job_state, JobState::kRejected);
    } else {
      EXPECT_EQ(state, ApprovalState::kExpired);
      EXPECT_EQ(job_state, expired == 1 ? JobState::kFailed : JobState::kCancelled);
    }
    if (job_state == JobState::kQueued) ASSERT_OK(store_->Finish(LeaseOf(ClaimOne()), MakeEnd()));
  }
  ExpectCountsAgree();
}

TEST_P(Approving, AQuorumIsReachedOnceByMany) {
  SubmitAwaiting("j1", "a1", 5);
  std::atomic<int> accepted{0};
  std::atomic<int> decisive{0};
  InThreads(12, [&](int who) {
    // Two threads for each of six people.
    const Result<Approval> answered =
        store_->AnswerApproval("a1", Grant("p" + std::to_string(who / 2)), Denied(), {MakeEvent("granted")});
    if (!answered) return;
    ++accepted;
    if (answered->state == ApprovalState::kGranted) ++decisive;
  });
  EXPECT_EQ(accepted, 5);
  EXPECT_EQ(decisive, 1);
  EXPECT_EQ(EventTypes("j1").size(), 7U);
  EXPECT_EQ(Claim(10).size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Store, Approving, kKinds);

}  // namespace
}  // namespace caisson::store::testing
