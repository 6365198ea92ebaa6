// Tests the promises of store/store.h about callbacks, about purging, and about the state that a new process finds.
#include "conformance/store_fixture.h"

namespace caisson::store::testing {
namespace {

using Strings = std::vector<std::string>;

class Upkeep : public StoreTest {};

TEST_P(Upkeep, CallbacksAreKeptUntilTheyAreSettled) {
  for (const std::string id : {"j1", "j2"}) {
    Job job = MakeJob(id);
    job.callback_url = "https://ci.example/" + id;
    Submit(job);
    ASSERT_OK(store_->Finish(LeaseOf(ClaimOne()), MakeEnd()));
  }
  const int64_t due = MakeEnd().now_ms;
  EXPECT_EQ(Must(store_->ClaimCallbacks(due - 1, due + 100, 10)).size(), 0U);
  const Result<std::vector<Callback>> first = store_->ClaimCallbacks(due, due + 100, 1);
  ASSERT_EQ(first->size(), 1U);
  EXPECT_EQ(first->front().tries, 0);
  const Result<std::vector<Callback>> second = store_->ClaimCallbacks(due, due + 100, 10);
  ASSERT_EQ(second->size(), 1U) << "the first is kept from others";
  EXPECT_NE(second->front().job_id, first->front().job_id);
  ASSERT_OK(store_->SettleCallback(first->front().job_id, 1, due + 500));
  ASSERT_OK(store_->SettleCallback(second->front().job_id, 1, 0));
  EXPECT_EQ(Must(store_->ClaimCallbacks(due + 499, due + 600, 10)).size(), 0U);
  const Result<std::vector<Callback>> again = store_->ClaimCallbacks(due + 500, due + 600, 10);
  ASSERT_EQ(again->size(), 1U);
  EXPECT_EQ(again->front().tries, 1);
  // The process that claimed the callback died, so the callback is due again.
  EXPECT_EQ(Must(store_->ClaimCallbacks(due + 600, due + 700, 10)).size(), 1U);
}

TEST_P(Upkeep, CallbacksOfTenantsThatAreBusyStay) {
  for (const std::string id : {"j1", "j2", "j3"}) {
    Job job = MakeJob(id, id == "j3" ? "zeta" : "acme");
    job.callback_url = "https://ci.example/" + id;
    Submit(job);
    ASSERT_OK(store_->Finish(LeaseOf(ClaimOne()), MakeEnd()));
  }
  const int64_t due = MakeEnd().now_ms;
  const std::vector<Callback> others = Must(store_->ClaimCallbacks(due, due + 100, 10, {"acme", "nobody"}));
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].job_id, "j3");
  EXPECT_EQ(others[0].tenant, "zeta");
  EXPECT_EQ(Must(store_->ClaimCallbacks(due, due + 100, 10)).size(), 2U);
}

TEST_P(Upkeep, BlobsInUseAreATenantsOwn) {
  Job job = MakeJob("j1", "acme");
  job.blobs = {{"archive", 1}};
  Submit(job);
  EXPECT_EQ(Must(store_->BlobsInUse({"archive"}, "acme")), Strings{"archive"});
  EXPECT_EQ(Must(store_->BlobsInUse({"archive"}, "zeta")), Strings{});
}

TEST_P(Upkeep, ANoteIsThereWhenWhatItSaysIs) {
  const auto note = [](const std::string& id) { return AuditNote{id, "node", "j1", "record of " + id}; };
  SubmitAwaiting("j1", "a1", 1);
  ASSERT_OK(store_->AnswerApproval("a1", {"ada", true, "", kNow}, MakeEnd(), {}, note("n1")));
  EXPECT_ERROR(kConflict, store_->AnswerApproval("a1", {"bob", false, "no", kNow}, MakeEnd(), {}, note("n2")));
  EXPECT_ERROR(kConflict, store_->ExpireApproval("a1", MakeEnd(), note("n3")));
  EXPECT_ERROR(kConflict, store_->Remove("j1", note("n4")));
  ASSERT_OK(store_->Cancel("j1", "enough", MakeEnd(JobState::kCancelled), note("n5")));
  EXPECT_ERROR(kConflict, store_->Cancel("j1", "again", MakeEnd(JobState::kCancelled), note("n6")));
  ASSERT_OK(store_->Remove("j1", note("n7")));
  const std::vector<AuditNote> notes = Must(store_->AuditNotes("node", 10));
  Strings ids;
  for (const AuditNote& one : notes) ids.push_back(one.id);
  ASSERT_EQ(ids, (Strings{"n1", "n5", "n7"}));
  EXPECT_EQ(notes[0].record, "record of n1");
  EXPECT_EQ(notes[0].job_id, "j1");
  EXPECT_TRUE(Must(store_->HasAuditNotes("j1")));
  EXPECT_FALSE(Must(store_->HasAuditNotes("j2")));
  EXPECT_EQ(Must(store_->AuditNotes("another", 10)).size(), 0U);
  ASSERT_OK(store_->ForgetAuditNotes({"n1", "n5", "n7"}));
  EXPECT_FALSE(Must(store_->HasAuditNotes("j1")));
}

TEST_P(Upkeep, RemovingTakesEverythingOfAJob) {
  Job job = MakeJob("j1");
  job.idempotency_key = "key";
  job.labels = {{"a", "b"}};
  job.blobs = {{"archive", 1}};
  job.callback_url = "https://ci.example/done";
  Submit(job, kNow + 100'000);
  EXPECT_EQ(Must(store_->BlobsInUse({"archive"})), Strings{"archive"});
  EXPECT_ERROR(kConflict, store_->Remove("j1"));
  ASSERT_OK(store_->AwaitApproval(LeaseOf(ClaimOne()), MakeApproval("a1", job), {}));
  ASSERT_OK(store_->AnswerApproval("a1", {"ada", true, "", kNow}, MakeEnd(), {}));
  ASSERT_OK(store_->Retry(LeaseOf(ClaimOne()), MakeAttempt(1), 0, {}));
  End end = MakeEnd();
  end.blobs = {{"artifact", 1}};
  ASSERT_OK(store_->Finish(LeaseOf(ClaimOne()), end));
  ASSERT_OK(store_->Remove("j1"));
  EXPECT_ERROR(kNotFound, store_->Find("j1"));
  EXPECT_ERROR(kNotFound, store_->Remove("j1"));
  EXPECT_ERROR(kNotFound, store_->FindApproval("a1"));
  EXPECT_EQ(Must(store_->Attempts("j1")).size(), 0U);
  EXPECT_EQ(EventTypes("j1").size(), 0U);
  EXPECT_EQ(Must(store_->BlobsInUse({"archive", "artifact"})).size(), 0U);
  EXPECT_EQ(Must(store_->ClaimCallbacks(kNow + 99'000, kNow + 99'001, 10)).size(), 0U);
  EXPECT_EQ(Submit(job, kNow + 100'000).id, "j1") << "its key is free again";
}

TEST_P(Upkeep, PurgingTakesOldEndsAndExpiredKeys) {
  for (int i = 0; i < 5; ++i) {
    Job job = MakeJob("j" + std::to_string(i));
    job.idempotency_key = job.id;
    Submit(job, kNow + 100);
    if (i == 4) break;
    End end = MakeEnd();
    end.now_ms = kNow + i;
    end.blobs = {{"shared", 1}, {"only " + job.id, 1}};
    ASSERT_OK(store_->Finish(LeaseOf(ClaimOne()), end));
  }
  EXPECT_EQ(Must(store_->Purge(kNow + 3, kNow, 2)), 2);
  EXPECT_EQ(Must(store_->Purge(kNow + 3, kNow, 2)), 1);
  EXPECT_EQ(Must(store_->Purge(kNow + 3, kNow, 2)), 0);
  EXPECT_ERROR(kNotFound, store_->Find("j2"));
  EXPECT_OK(store_->Find("j3"));
  EXPECT_OK(store_->Find("j4"));
  EXPECT_EQ(Must(store_->BlobsInUse({"shared", "only j0", "only j3"})), (Strings{"shared", "only j3"}));
  // The key of the last job, which still waits, expires; the job stays.
  EXPECT_EQ(Must(store_->Purge(0, kNow + 100, 10)), 0);
  Job again = MakeJob("j9");
  again.idempotency_key = "j4";
  EXPECT_EQ(Submit(again).id, "j9");
  ExpectCountsAgree();
}

TEST_P(Upkeep, WhatIsThereOutlivesTheProcess) {
  SubmitAwaiting("j1", "a1", 2);
  ASSERT_OK(store_->AnswerApproval("a1", {"ada", true, "fine", kNow}, MakeEnd(), {MakeEvent("answered")}));
  Job job = MakeJob("j2");
  job.callback_url = "https://ci.example/done";
  Submit(job);
  ASSERT_OK(store_->Finish(LeaseOf(ClaimOne()), MakeEnd()));
  SubmitNew("j3");
  const Lease lease = LeaseOf(ClaimOne());
  SubmitNew("j4");
  Reopen();
  EXPECT_EQ(Must(store_->FindApproval("a1")).answers.size(), 1U);
  EXPECT_EQ(EventTypes("j1"), (Strings{"submitted", "asked", "answered"}));
  EXPECT_EQ(Find("j2").result, MakeEnd().result);
  EXPECT_EQ(Must(store_->ClaimCallbacks(kNow + 9000, kNow + 9001, 10)).size(), 1U);
  EXPECT_EQ(Must(store_->Renew({lease}, kNow)).front(), LeaseFate::kKept) << "a lease outlives its caissond";
  EXPECT_EQ(ClaimOne().id, "j4");
  ExpectCountsAgree();
}

INSTANTIATE_TEST_SUITE_P(Store, Upkeep, kKinds);

}  // namespace
}  // namespace caisson::store::testing
