// Tests the promises of store/store.h for one caller at a time: submitting, reading, claiming, working.
#include <map>

#include "conformance/store_fixture.h"

namespace caisson::store::testing {
namespace {

std::vector<std::string> Ids(const std::vector<Job>& jobs) {
  std::vector<std::string> ids;
  for (const Job& job : jobs) ids.push_back(job.id);
  return ids;
}
using Strings = std::vector<std::string>;

class Submitting : public StoreTest {};
class Reading : public StoreTest {};
class Claiming : public StoreTest {};
class Working : public StoreTest {};

TEST_P(Submitting, AJobIsFoundAsItWasGiven) {
  Job job = MakeJob("j1");
  job.idempotency_key = "key";
  job.labels = {{"branch", "main"}, {"", "3:x"}, {"π", "\"'; DROP TABLE jobs; --\n"}};
  job.callback_url = "https://ci.example/done";
  job.priority = -7;
  job.deadline_ms = kNow + 1000;
  job.request = std::string(1'000'000, 'r');
  const Result<Submitted> submitted = store_->Submit(job, {}, kNow + 10, {MakeEvent("a"), MakeEvent("b")});
  ASSERT_TRUE(submitted) << submitted.error().message;
  EXPECT_FALSE(submitted->existed);

  const Job found = Find("j1");
  EXPECT_EQ(found.tenant, job.tenant);
  EXPECT_EQ(found.submitter, job.submitter);
  EXPECT_EQ(found.request_id, job.request_id);
  EXPECT_EQ(found.request, job.request);
  EXPECT_EQ(found.request_digest, job.request_digest);
  EXPECT_EQ(found.idempotency_key, job.idempotency_key);
  EXPECT_EQ(found.labels, job.labels);
  EXPECT_EQ(found.callback_url, job.callback_url);
  EXPECT_EQ(found.priority, job.priority);
  EXPECT_EQ(found.max_attempts, job.max_attempts);
  EXPECT_EQ(found.submitted_ms, job.submitted_ms);
  EXPECT_EQ(found.deadline_ms, job.deadline_ms);
  EXPECT_EQ(found.state, JobState::kQueued);
  EXPECT_EQ(found.attempt, 1);
  EXPECT_EQ(found.lease_token, "");
  EXPECT_EQ(EventTypes("j1"), (Strings{"a", "b"}));
}

TEST_P(Submitting, TheSameKeyAndBodyGiveTheJobOfThen) {
  Job job = MakeJob("j1");
  job.idempotency_key = "key";
  Submit(job, kNow + 1000);
  Job again = MakeJob("j2");
  again.idempotency_key = "key";
  again.request_digest = job.request_digest;
  const Result<Submitted> second = store_->Submit(again, {}, kNow + 1000, {MakeEvent("submitted")});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(second->existed);
  EXPECT_EQ(second->job.id, "j1");
  EXPECT_EQ(second->job.request, job.request);
  EXPECT_ERROR(kNotFound, store_->Find("j2"));
  EXPECT_EQ(EventTypes("j1"), Strings{"submitted"});
  ExpectCountsAgree();
}

TEST_P(Submitting, TheSameKeyWithAnotherBodyIsRefused) {
  Job job = MakeJob("j1");
  job.idempotency_key = "key";
  Submit(job, kNow + 1000);
  Job other = MakeJob("j2");
  other.idempotency_key = "key";
  EXPECT_ERROR(kConflict, store_->Submit(other, {}, kNow + 1000, {}));
  EXPECT_ERROR(kNotFound, store_->Find("j2"));
}

TEST_P(Submitting, KeysOfTenantsAreApart) {
  for (const std::string tenant : {"acme", "globex"}) {
    Job job = MakeJob("job of " + tenant, tenant);
    job.idempotency_key = "key";
    const Result<Submitted> submitted = store_->Submit(job, {}, kNow + 1000, {});
    ASSERT_TRUE(submitted) << submitted.error().message;
    EXPECT_FALSE(submitted->existed);
  }
}

TEST_P(Submitting, AKeyIsRememberedUntilItExpires) {
  Job job = MakeJob("j1");
  job.idempotency_key = "key";
  Submit(job, kNow + 1000);
  Reopen();
  Job again = MakeJob("j2");
  again.idempotency_key = "key";
  again.request_digest = job.request_digest;
  again.submitted_ms = kNow + 999;
  Result<Submitted> submitted = store_->Submit(again, {}, kNow + 5000, {});
  ASSERT_TRUE(submitted) << submitted.error().message;
  EXPECT_TRUE(submitted->existed) << "a key outlives the process";
  again.submitted_ms = kNow + 1000;
  again.request_digest = "another body";
  submitted = store_->Submit(again, {}, kNow + 5000, {});
  ASSERT_TRUE(submitted) << submitted.error().message;
  EXPECT_FALSE(submitted->existed);
  EXPECT_EQ(submitted->job.id, "j2");
  // From then on the key belongs to the new job.
  again.id = "j3";
  submitted = store_->Submit(again, {}, kNow + 5000, {});
  ASSERT_TRUE(submitted) << submitted.error().message;
  EXPECT_EQ(submitted->job.id, "j2");
}

TEST_P(Submitting, AnIdIsTakenOnce) {
  SubmitNew("j1");
  EXPECT_ERROR(kConflict, store_->Submit(MakeJob("j1"), {}, 0, {MakeEvent("again")}));
  EXPECT_EQ(EventTypes("j1"), Strings{"submitted"});
}

TEST_P(Submitting, AFullQueueRefusesAndKeepsNothing) {
  const QueueBounds bounds{3, 2};
  ASSERT_OK(store_->Submit(MakeJob("a1", "a"), bounds, 0, {}));
  ASSERT_OK(store_->Submit(MakeJob("a2", "a"), bounds, 0, {}));
  Job third = MakeJob("a3", "a");
  third.idempotency_key = "key";
  EXPECT_ERROR(kExhausted, store_->Submit(third, bounds, 0, {}));
  ASSERT_OK(store_->Submit(MakeJob("b1", "b"), bounds, 0, {}));
  EXPECT_ERROR(kExhausted, store_->Submit(MakeJob("c1", "c"), bounds, 0, {}));
  // A job that a worker holds does not count as waiting.
  ASSERT_EQ(Claim(3).size(), 3U);
  third.request_digest = "another body: the refused one did not take the key";
  ASSERT_OK(store_->Submit(third, bounds, 0, {}));
  ExpectCountsAgree();
}

TEST_P(Submitting, JobsThatWaitForPeopleFillTheQueueToo) {
  SubmitAwaiting("j1", "a1");
  EXPECT_ERROR(kExhausted, store_->Submit(MakeJob("j2"), {1, 0}, 0, {}));
}

TEST_P(Submitting, TextThatNoDatabaseKeepsIsRefused) {
  for (const std::string& bad : {std::string("a\0b", 3), std::string("\xff\xfe"), std::string("\xed\xa0\x80")}) {
    Job job = MakeJob("j1");
    job.request = bad;
    EXPECT_ERROR(kInvalid, store_->Submit(job, {}, 0, {}));
  }
  EXPECT_ERROR(kInvalid, store_->Submit(MakeJob("j1", ""), {}, 0, {}));
  EXPECT_ERROR(kNotFound, store_->Find("j1"));
}

TEST_P(Reading, ListsAreNewestFirstAndCanBeFiltered) {
  for (int i = 1; i <= 6; ++i) {
    Job job = MakeJob("j" + std::to_string(i), i % 2 == 0 ? "even" : "odd");
    if (i > 3) job.labels = {{"branch", i == 6 ? "main" : "next"}, {"n", std::to_string(i)}};
    Submit(job);
  }
  const auto list = [&](const std::function<void(JobFilter*)>& set) {
    JobFilter filter;
    set(&filter);
    const Result<std::vector<Job>> jobs = store_->List(filter);
    EXPECT_TRUE(jobs) << jobs.error().message;
    for (const Job& job : *jobs) EXPECT_TRUE(job.request.empty() && job.result.empty());
    return Ids(*jobs);
  };
  EXPECT_EQ(list([](JobFilter*) {}), (Strings{"j6", "j5", "j4", "j3", "j2", "j1"}));
  EXPECT_EQ(list([](JobFilter* filter) { filter->limit = 2; }), (Strings{"j6", "j5"}));
  EXPECT_EQ(list([](JobFilter* filter) { filter->before_id = "j3"; }), (Strings{"j2", "j1"}));
  EXPECT_EQ(list([](JobFilter* filter) { filter->tenant = "odd"; }), (Strings{"j5", "j3", "j1"}));
  EXPECT_EQ(list([](JobFilter* filter) { filter->request_id = "request of j4"; }), Strings{"j4"});
  EXPECT_EQ(list([](JobFilter* filter) {
              filter->label_key = "branch";
              filter->label_value = "next";
            }),
            (Strings{"j5", "j4"}));
  const Job ended = ClaimOne();  // "even" comes first: neither was served, and names break the tie
  ASSERT_OK(store_->Finish(LeaseOf(ended), MakeEnd(JobState::kRejected)));
  EXPECT_EQ(list([](JobFilter* filter) { filter->states = {JobState::kRejected}; }), Strings{ended.id});
  EXPECT_EQ(list([](JobFilter* filter) { filter->states = {JobState::kRejected, JobState::kQueued}; }).size(), 6U);
  EXPECT_EQ(list([&](JobFilter* filter) {
              filter->tenant = ended.tenant;
              filter->states = {JobState::kQueued};
              filter->before_id = "j5";
              filter->limit = 1;
            }),
            Strings{ended.tenant == "even" ? "j4" : "j3"});
}

TEST_P(Reading, EventsComeFromAfterANumber) {
  SubmitNew("j1");
  ASSERT_OK(store_->AppendEvents("j1", {MakeEvent("b"), MakeEvent("c"), MakeEvent("d")}));
  const Result<std::vector<Event>> events = store_->Events("j1", 2, 1);
  ASSERT_TRUE(events) << events.error().message;
  ASSERT_EQ(events->size(), 1U);
  EXPECT_EQ(events->front().seq, 3);
  EXPECT_EQ(events->front().type, "c");
  EXPECT_EQ(events->front().time_ms, kNow);
  EXPECT_EQ(events->front().body, R"({"of": "c"})");
  EXPECT_ERROR(kNotFound, store_->AppendEvents("nobody", {MakeEvent("a")}));
}

TEST_P(Reading, CountsSayWhatThereIs) {
  EXPECT_EQ(Count().oldest_queued_ms, 0);
  Job old = MakeJob("j1");
  old.submitted_ms = kNow - 500;
  Submit(old);
  SubmitNew("j2");
  SubmitNew("j3", "globex");
  EXPECT_EQ(Count().oldest_queued_ms, kNow - 500);
  const Job claimed = ClaimOne();
  ASSERT_EQ(claimed.id, "j1");
  EXPECT_EQ(Count().oldest_queued_ms, kNow);
  ASSERT_OK(store_->AwaitApproval(LeaseOf(claimed), MakeApproval("a1", claimed), {}));
  const Counts counts = Count();
  EXPECT_EQ(counts.approvals_pending, 1);
  EXPECT_EQ(counts.by_state.at("queued"), 2);
  EXPECT_EQ(counts.by_state.at("awaiting_approval"), 1);
  EXPECT_EQ(counts.waiting_by_tenant, (std::map<std::string, int64_t>{{"acme", 2}, {"globex", 1}}));
  ExpectCountsAgree();
}

TEST_P(Reading, TheDatabaseAnswersAndHasAName) {
  EXPECT_OK(store_->Ping());
  EXPECT_EQ(store_->Description().find(GetParam()), 0U) << store_->Description();
}

TEST_P(Claiming, AJobComesWholeWithALease) {
  Job job = MakeJob("j1");
  job.labels = {{"a", "b"}};
  Submit(job);
  const Job claimed = ClaimOne();
  EXPECT_EQ(claimed.id, "j1");
  EXPECT_EQ(claimed.request, job.request);
  EXPECT_EQ(claimed.labels, job.labels);
  EXPECT_EQ(claimed.state, JobState::kQueued);
  EXPECT_EQ(claimed.lease_token.size(), 32U);
  EXPECT_EQ(claimed.worker, "w1");
  EXPECT_EQ(claimed.lease_until_ms, kNow + kLeaseMs);
  EXPECT_EQ(Claim().size(), 0U) << "nobody else gets it";
  EXPECT_EQ(Find("j1").lease_token, claimed.lease_token);
}

TEST_P(Claiming, WithinATenantByPriorityThenAge) {
  for (const auto& [id, priority] : std::map<std::string, int64_t>{{"j1", 0}, {"j2", 5}, {"j3", -1}, {"j4", 5}}) {
    Job job = MakeJob(id);
    job.priority = priority;
    Submit(job);
  }
  EXPECT_EQ(Ids(Claim(10)), (Strings{"j2", "j4", "j1", "j3"}));
}

TEST_P(Claiming, TenantsTakeTurnsHoweverManyJobsTheyHave) {
  for (int i = 0; i < 6; ++i) SubmitNew("a" + std::to_string(i), "many");
  SubmitNew("b0", "few");
  SubmitNew("b1", "few");
  Strings tenants;
  for (const Job& job : Claim(6)) tenants.push_back(job.tenant);
  EXPECT_EQ(tenants, (Strings{"few", "many", "few", "many", "many", "many"}));
}

TEST_P(Claiming, TheTenantWithTheFewestLeasesThenTheOneServedLongestAgo) {
  for (int i = 0; i < 3; ++i) {
    SubmitNew("a" + std::to_string(i), "a");
    SubmitNew("b" + std::to_string(i), "b");
  }
  const Job first = ClaimOne();
  EXPECT_EQ(first.tenant, "a");
  EXPECT_EQ(ClaimOne().tenant, "b") << "a has a lease";
  ASSERT_OK(store_->Finish(LeaseOf(first), MakeEnd()));
  EXPECT_EQ(ClaimOne().tenant, "a") << "b has a lease, though it was served later";
  EXPECT_EQ(ClaimOne().tenant, "b") << "as many leases, and served longer ago";
}

TEST_P(Claiming, TenantsHaveLimits) {
  for (int i = 0; i < 5; ++i) {
    SubmitNew("a" + std::to_string(i), "a");
    SubmitNew("b" + std::to_string(i), "b");
  }
  ClaimOptions options = ClaimAs("w1", 10);
  options.tenant_limit = 2;
  options.tenant_limits = {{"b", 3}};
  Result<std::vector<Job>> claimed = store_->Claim(options);
  ASSERT_TRUE(claimed) << claimed.error().message;
  std::map<std::string, int> counts;
  for (const Job& job : *claimed) ++counts[job.tenant];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"a", 2}, {"b", 3}}));
  ASSERT_OK(store_->Finish(LeaseOf(claimed->front()), MakeEnd()));
  claimed = store_->Claim(options);
  ASSERT_TRUE(claimed) << claimed.error().message;
  EXPECT_EQ(claimed->size(), 1U);
}

TEST_P(Claiming, NotBeforeItsTimeNorAfterItsDeadline) {
  Job later = MakeJob("later");
  later.not_before_ms = kNow + 100;
  Submit(later);
  Job late = MakeJob("late");
  late.deadline_ms = kNow + 50;
  Submit(late);
  EXPECT_EQ(Count(kNow + 50).oldest_queued_ms, 0) << "neither could run";
  EXPECT_EQ(Claim(10, kNow + 50).size(), 0U);
  EXPECT_EQ(Ids(Claim(10, kNow + 100)), Strings{"later"});
  ExpectCountsAgree();
}

TEST_P(Claiming, OverdueJobsAreTakenToBeEnded) {
  for (const std::string id : {"j1", "j2", "j3"}) {
    Job job = MakeJob(id);
    job.deadline_ms = kNow + 50;
    if (id == "j2") job.not_before_ms = kNow + 1000;
    Submit(job);
  }
  const Job asked = ClaimOne();
  ASSERT_OK(store_->AwaitApproval(LeaseOf(asked), MakeApproval("a1", asked), {}));
  SubmitNew("endless");

  ClaimOptions options = ClaimAs("reconciler", 10);
  options.now_ms = kNow + 49;
  EXPECT_EQ(Must(store_->TakeOverdue(options)).size(), 0U);
  options.now_ms = kNow + 50;
  options.max_jobs = 2;
  const Result<std::vector<Job>> two = store_->TakeOverdue(options);
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(Ids(*two), (Strings{"j1", "j2"}));
  const Result<std::vector<Job>> rest = store_->TakeOverdue(options);
  EXPECT_EQ(Ids(*rest), Strings{"j3"});
  ExpectCountsAgree();

  // An approver's answer comes too late for a job that is being ended.
  const ApprovalAnswer answer{"eve", true, "", kNow + 50};
  EXPECT_ERROR(kConflict, store_->AnswerApproval("a1", answer, MakeEnd(), {}));
  ASSERT_EQ((*two)[0].id, asked.id);
  ASSERT_OK(store_->Finish(LeaseOf((*two)[0]), MakeEnd(JobState::kRejected)));
  EXPECT_EQ(Must(store_->FindApproval("a1")).state, ApprovalState::kExpired);
  // A job that was given back is still overdue.
  ASSERT_OK(store_->Release(LeaseOf((*two)[1])));
  EXPECT_EQ(Ids(Claim(10, kNow + 2000)), Strings{"endless"});
  EXPECT_EQ(Ids(Must(store_->TakeOverdue(options))), Strings{"j2"});
}

TEST_P(Claiming, LeasesAreKeptRenewedAndLost) {
  SubmitNew("j1");
  SubmitNew("j2");
  SubmitNew("j3");
  const std::vector<Job> jobs = Claim(3);
  ASSERT_EQ(jobs.size(), 3U);
  ASSERT_OK(store_->Release(LeaseOf(jobs[1])));
  ASSERT_OK(store_->Cancel("j3", "enough", MakeEnd(JobState::kCancelled)));
  const Result<std::vector<LeaseFate>> fates =
      store_->Renew({LeaseOf(jobs[2]), LeaseOf(jobs[1]), LeaseOf(jobs[0]), {"j1", ""}, {"j1", "guess"}}, kNow + 99'000);
  ASSERT_TRUE(fates) << fates.error().message;
  EXPECT_EQ(*fates, (std::vector<LeaseFate>{LeaseFate::kCancelled, LeaseFate::kLost, LeaseFate::kKept, LeaseFate::kLost,
                                            LeaseFate::kLost}));
  EXPECT_EQ(Find("j1").lease_until_ms, kNow + 99'000);
  EXPECT_EQ(Must(store_->LapsedLeases(kNow + 99'000, 10)).size(), 0U);
  const Result<std::vector<Job>> lapsed = store_->LapsedLeases(kNow + 99'001, 10);
  ASSERT_EQ(lapsed->size(), 2U);
  EXPECT_EQ(Must(store_->LapsedLeases(kNow + 99'001, 1)).size(), 1U);
  for (const Job& job : *lapsed) ASSERT_OK(store_->Retry(LeaseOf(job), MakeAttempt(1), 0, {}));
  EXPECT_ERROR(kConflict, store_->Finish(LeaseOf(jobs[0]), MakeEnd()));
}

TEST_P(Working, AWorkerMovesItsJobForward) {
  SubmitNew("j1");
  const Lease lease = LeaseOf(ClaimOne());
  ASSERT_OK(store_->Advance(lease, JobState::kAdmitted, kNow + 1, {MakeEvent("admitted")}));
  EXPECT_EQ(Find("j1").state, JobState::kAdmitted);
  ASSERT_OK(store_->Advance(lease, JobState::kRunning, kNow + 2, {MakeEvent("running"), MakeEvent("check")}));
  EXPECT_EQ(Find("j1").state, JobState::kRunning);
  EXPECT_EQ(Find("j1").started_ms, kNow + 2);
  EXPECT_ERROR(kConflict, store_->Advance(lease, JobState::kAdmitted, kNow + 3, {}));
  EXPECT_ERROR(kInvalid, store_->Advance(lease, JobState::kSucceeded, kNow + 3, {}));
  EXPECT_EQ(EventTypes("j1"), (Strings{"submitted", "admitted", "running", "check"}));
}

TEST_P(Working, AJobEndsOnce) {
  Job job = MakeJob("j1");
  job.callback_url = "https://ci.example/done";
  Submit(job);
  const Lease lease = LeaseOf(ClaimOne());
  ASSERT_OK(store_->Advance(lease, JobState::kRunning, kNow, {}));
  End end = MakeEnd(JobState::kFailed);
  end.failure_class = "test_failure";
  end.result_blob = "beef";
  end.blobs = {{"cafe", 10}};
  EXPECT_ERROR(kInvalid, store_->Finish(lease, MakeEnd(JobState::kRunning)));
  ASSERT_OK(store_->Finish(lease, end));
  EXPECT_ERROR(kConflict, store_->Finish(lease, MakeEnd()));
  const Job found = Find("j1");
  EXPECT_EQ(found.state, JobState::kFailed);
  EXPECT_EQ(found.status, "pass");
  EXPECT_EQ(found.failure_class, "test_failure");
  EXPECT_EQ(found.result, end.result);
  EXPECT_EQ(found.result_blob, "beef");
  EXPECT_EQ(found.finished_ms, end.now_ms);
  EXPECT_EQ(found.lease_token, "");
  EXPECT_EQ(EventTypes("j1"), (Strings{"submitted", "ended"}));
  EXPECT_EQ(Must(store_->BlobsInUse({"beef", "dead", "cafe"})), (Strings{"beef", "cafe"}));
  const Result<std::vector<Callback>> callbacks = store_->ClaimCallbacks(end.now_ms, end.now_ms + 1, 10);
  ASSERT_EQ(callbacks->size(), 1U);
  EXPECT_EQ(callbacks->front().url, job.callback_url);
  ExpectCountsAgree();
}

TEST_P(Working, ALostLeaseIsRefusedEverywhere) {
  SubmitNew("j1");
  const Job job = ClaimOne();
  const Lease lost = LeaseOf(job);
  ASSERT_OK(store_->Retry(lost, MakeAttempt(1), 0, {}));
  const Job taken = ClaimOne();
  const Strings events = EventTypes("j1");
  for (const Lease& lease : {lost, Lease{"j1", ""}, Lease{"j1", "guess"}, Lease{"nobody", lost.token}}) {
    EXPECT_ERROR(kConflict, store_->Advance(lease, JobState::kRunning, kNow, {MakeEvent("x")}));
    EXPECT_ERROR(kConflict, store_->Finish(lease, MakeEnd()));
    EXPECT_ERROR(kConflict, store_->Retry(lease, MakeAttempt(2), 0, {MakeEvent("x")}));
    EXPECT_ERROR(kConflict, store_->GiveUp(lease, MakeAttempt(2), MakeEnd(JobState::kDeadLettered)));
    EXPECT_ERROR(kConflict, store_->Release(lease));
    EXPECT_ERROR(kConflict, store_->AwaitApproval(lease, MakeApproval("a1", job), {MakeEvent("x")}));
    EXPECT_ERROR(kConflict, store_->UseApproval(lease, "a1"));
    EXPECT_EQ(Must(store_->Renew({lease}, kNow)).front(), LeaseFate::kLost);
  }
  EXPECT_EQ(EventTypes("j1"), events);
  EXPECT_EQ(Must(store_->Attempts("j1")).size(), 1U);
  EXPECT_ERROR(kNotFound, store_->FindApproval("a1"));
  EXPECT_EQ(Find("j1").lease_token, taken.lease_token);
  EXPECT_OK(store_->Finish(LeaseOf(taken), MakeEnd()));
  EXPECT_ERROR(kConflict, store_->Release(LeaseOf(taken)));
}

TEST_P(Working, AttemptsAreCountedAndKept) {
  SubmitNew("j1");
  Job job = ClaimOne();
  ASSERT_OK(store_->Advance(LeaseOf(job), JobState::kRunning, kNow, {}));
  ASSERT_OK(store_->Retry(LeaseOf(job), MakeAttempt(1), kNow + 1000, {MakeEvent("retry")}));
  EXPECT_EQ(Find("j1").attempt, 2);
  EXPECT_EQ(Find("j1").state, JobState::kQueued);
  EXPECT_EQ(Claim(1, kNow + 999).size(), 0U);
  job = ClaimOne(kNow + 1000);
  EXPECT_EQ(job.attempt, 2);
  ASSERT_OK(store_->GiveUp(LeaseOf(job), MakeAttempt(2), MakeEnd(JobState::kDeadLettered)));
  EXPECT_EQ(Find("j1").state, JobState::kDeadLettered);
  EXPECT_EQ(EventTypes("j1"), (Strings{"submitted", "retry", "ended"}));

  const Result<Job> again = store_->Requeue("j1", kNow + 5000, {MakeEvent("requeued")});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->state, JobState::kQueued);
  EXPECT_EQ(again->attempt, 1);
  EXPECT_EQ(again->result, "");
  EXPECT_EQ(again->finished_ms, 0);
  EXPECT_ERROR(kConflict, store_->Requeue("j1", kNow, {}));
  EXPECT_ERROR(kNotFound, store_->Requeue("nobody", kNow, {}));
  job = ClaimOne(kNow + 5000);
  ASSERT_OK(store_->Retry(LeaseOf(job), MakeAttempt(1), 0, {}));
  const Result<std::vector<Attempt>> attempts = store_->Attempts("j1");
  ASSERT_EQ(attempts->size(), 3U);
  EXPECT_EQ((*attempts)[1].number, 2);
  EXPECT_EQ((*attempts)[2].number, 1);
  EXPECT_EQ((*attempts)[2].error, "the launcher is gone");
  EXPECT_EQ((*attempts)[2].ended_ms, kNow + 100);
  ExpectCountsAgree();
}

TEST_P(Working, ARequeuedJobHasItsTimeAnewAndNoOldCallback) {
  Job job = MakeJob("j1");
  job.deadline_ms = kNow + 1000;
  job.callback_url = "https://ci.example/done";
  Submit(job);
  ASSERT_OK(store_->GiveUp(LeaseOf(ClaimOne()), MakeAttempt(1), MakeEnd(JobState::kDeadLettered)));
  ASSERT_OK(store_->Requeue("j1", kNow + 50'000, {}));
  EXPECT_EQ(Find("j1").deadline_ms, kNow + 51'000);
  EXPECT_EQ(Must(store_->ClaimCallbacks(kNow + 60'000, kNow + 70'000, 10)).size(), 0U);
  EXPECT_EQ(ClaimOne(kNow + 50'999).id, "j1");
}

TEST_P(Working, APostponedAttemptDoesNotCount) {
  SubmitNew("j1");
  Job job = ClaimOne();
  ASSERT_OK(store_->Advance(LeaseOf(job), JobState::kRunning, kNow, {}));
  ASSERT_OK(store_->Postpone(LeaseOf(job), kNow + 1000, {MakeEvent("later")}));
  EXPECT_ERROR(kConflict, store_->Postpone(LeaseOf(job), kNow + 1000, {}));
  EXPECT_EQ(Find("j1").state, JobState::kQueued);
  EXPECT_EQ(Find("j1").attempt, 1);
  EXPECT_EQ(Must(store_->Attempts("j1")).size(), 0U);
  EXPECT_EQ(Claim(kNow + 999).size(), 0U);
  EXPECT_EQ(ClaimOne(kNow + 1000).attempt, 1);
  ExpectCountsAgree();
}

TEST_P(Working, AReleasedJobIsAsItWas) {
  SubmitNew("j1");
  SubmitNew("j2");
  const Job job = ClaimOne();
  ASSERT_OK(store_->Advance(LeaseOf(job), JobState::kAdmitted, kNow, {}));
  ASSERT_OK(store_->Release(LeaseOf(job)));
  EXPECT_EQ(Find("j1").state, JobState::kQueued);
  EXPECT_EQ(Find("j1").worker, "");
  EXPECT_EQ(Must(store_->Attempts("j1")).size(), 0U);
  const Job again = ClaimOne();
  EXPECT_EQ(again.id, "j1") << "it keeps its place";
  EXPECT_EQ(again.attempt, 1);
  EXPECT_NE(again.lease_token, job.lease_token);
}

TEST_P(Working, CancellingInEachState) {
  // A queued job ends.
  Job waiting = MakeJob("waiting");
  waiting.callback_url = "https://ci.example/done";
  Submit(waiting);
  const Result<Job> ended = store_->Cancel("waiting", "changed my mind", MakeEnd(JobState::kCancelled));
  ASSERT_TRUE(ended) << ended.error().message;
  EXPECT_EQ(ended->state, JobState::kCancelled);
  EXPECT_EQ(ended->cancel_reason, "changed my mind");
  EXPECT_EQ(Claim().size(), 0U);
  EXPECT_EQ(Must(store_->ClaimCallbacks(kNow + 5000, kNow + 6000, 10)).size(), 1U);
  // An ended job does not change.
  EXPECT_ERROR(kConflict, store_->Cancel("waiting", "again", MakeEnd(JobState::kCancelled)));
  EXPECT_EQ(Find("waiting").cancel_reason, "changed my mind");
  // For a leased job, its worker is asked once.
  SubmitNew("leased");
  const Lease lease = LeaseOf(ClaimOne());
  for (const JobState state : {JobState::kQueued, JobState::kAdmitted, JobState::kRunning}) {
    if (state != JobState::kQueued) ASSERT_OK(store_->Advance(lease, state, kNow, {}));
    const Result<Job> asked = store_->Cancel("leased", Name(state), MakeEnd(JobState::kCancelled));
    ASSERT_TRUE(asked) << asked.error().message;
    EXPECT_EQ(asked->state, state);
    EXPECT_TRUE(asked->cancel_requested);
    EXPECT_EQ(asked->cancel_reason, "queued") << "repeating it changes nothing";
    EXPECT_EQ(Must(store_->Renew({lease}, kNow)).front(), LeaseFate::kCancelled);
  }
  ASSERT_OK(store_->Finish(lease, MakeEnd(JobState::kCancelled)));
  EXPECT_EQ(EventTypes("leased"), (Strings{"submitted", "ended"}));
  // A job that waits for an approval ends, and so does the approval.
  SubmitAwaiting("asked", "a1");
  ASSERT_OK(store_->Cancel("asked", "", MakeEnd(JobState::kCancelled)));
  EXPECT_EQ(Find("asked").state, JobState::kCancelled);
  EXPECT_EQ(Must(store_->FindApproval("a1")).state, ApprovalState::kExpired);
  EXPECT_ERROR(kNotFound, store_->Cancel("nobody", "", MakeEnd(JobState::kCancelled)));
  ExpectCountsAgree();
}

INSTANTIATE_TEST_SUITE_P(Store, Submitting, kKinds);
INSTANTIATE_TEST_SUITE_P(Store, Reading, kKinds);
INSTANTIATE_TEST_SUITE_P(Store, Claiming, kKinds);
INSTANTIATE_TEST_SUITE_P(Store, Working, kKinds);

}  // namespace
}  // namespace caisson::store::testing
