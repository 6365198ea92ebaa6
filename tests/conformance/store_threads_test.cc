// Tests the promises of store/store.h for many callers at once. On PostgreSQL they use two stores, like two caissond
// processes.
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "conformance/store_fixture.h"

namespace caisson::store::testing {
namespace {

class Threads : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    if (store_ == nullptr || !backend_->Shared()) return;
    Result<std::unique_ptr<Store>> other = backend_->Open();
    ASSERT_TRUE(other) << other.error().message;
    other_ = *std::move(other);
  }
  Store& StoreOf(int thread) { return other_ != nullptr && thread % 2 == 1 ? *other_ : *store_; }

 private:
  std::unique_ptr<Store> other_;
};

TEST_P(Threads, AHundredSubmissionsWithOneKeyAreOneJob) {
  std::atomic<int> created{0};
  std::mutex mutex;
  std::set<std::string> ids;
  InThreads(100, [&](int thread) {
    Job job = MakeJob("j" + std::to_string(thread));
    job.idempotency_key = "key";
    job.request_digest = "the same body";
    const Result<Submitted> submitted = StoreOf(thread).Submit(job, {}, kNow + 1000, {MakeEvent("submitted")});
    ASSERT_TRUE(submitted) << submitted.error().message;
    if (!submitted->existed) ++created;
    const std::lock_guard<std::mutex> guard(mutex);
    ids.insert(submitted->job.id);
  });
  EXPECT_EQ(created, 1);
  ASSERT_EQ(ids.size(), 1U);
  EXPECT_EQ(Must(store_->List({})).size(), 1U);
  EXPECT_EQ(EventTypes(*ids.begin()).size(), 1U);
  ExpectCountsAgree();
}

TEST_P(Threads, OneKeyWithTwoBodiesIsOneJob) {
  std::atomic<int> accepted{0};
  InThreads(16, [&](int thread) {
    Job job = MakeJob("j" + std::to_string(thread));
    job.idempotency_key = "key";
    const Result<Submitted> submitted = StoreOf(thread).Submit(job, {}, kNow + 1000, {});
    if (submitted) {
      ++accepted;
    } else {
      EXPECT_EQ(submitted.error().kind, ErrorKind::kConflict) << submitted.error().message;
    }
  });
  EXPECT_EQ(accepted, 1);
}

TEST_P(Threads, NoJobIsClaimedTwiceAndNoLimitOverstepped) {
  constexpr int kJobs = 120;
  constexpr int kTenants = 3;
  constexpr int64_t kLimit = 4;
  InThreads(8, [&](int thread) {
    for (int i = thread; i < kJobs; i += 8) {
      ASSERT_OK(
          StoreOf(thread).Submit(MakeJob("j" + std::to_string(i), "t" + std::to_string(i % kTenants)), {}, 0, {}));
    }
  });
  std::mutex mutex;
  std::set<std::string> ended;
  std::map<std::string, int64_t> held;
  InThreads(8, [&](int thread) {
    Store& store = StoreOf(thread);
    ClaimOptions options = ClaimAs("w" + std::to_string(thread), 1 + thread % 3);
    options.tenant_limit = kLimit;
    for (;;) {
      const Result<std::vector<Job>> jobs = store.Claim(options);
      ASSERT_TRUE(jobs) << jobs.error().message;
      {
        const std::lock_guard<std::mutex> guard(mutex);
        // Counts a job after it was claimed and before it is given back, so the count is never above the store's.
        for (const Job& job : *jobs) EXPECT_LE(++held[job.tenant], kLimit);
        if (ended.size() == kJobs) return;
      }
      for (const Job& job : *jobs) {
        ASSERT_OK(store.Advance(LeaseOf(job), JobState::kRunning, kNow, {MakeEvent("running")}));
        {
          const std::lock_guard<std::mutex> guard(mutex);
          --held[job.tenant];
          EXPECT_TRUE(ended.insert(job.id).second) << job.id << " was given to two workers";
        }
        ASSERT_OK(store.Finish(LeaseOf(job), MakeEnd()));
      }
    }
  });
  EXPECT_EQ(Count().by_state.at("succeeded"), kJobs);
  ExpectCountsAgree();
}

TEST_P(Threads, OneOfManyEndsCounts) {
  for (int round = 0; round < 8; ++round) {
    const std::string id = "j" + std::to_string(round);
    SubmitNew(id);
    const Job job = ClaimOne();
    ASSERT_EQ(job.id, id);
    std::atomic<int> ends{0};
    InThreads(8, [&](int thread) {
      Store& store = StoreOf(thread);
      const Lease lease = LeaseOf(job);
      End end = MakeEnd();
      end.result = std::to_string(thread);
      const Status status = thread % 4 == 0   ? store.Retry(lease, MakeAttempt(1), 0, {})
                            : thread % 4 == 1 ? store.GiveUp(lease, MakeAttempt(1), MakeEnd(JobState::kDeadLettered))
                                              : store.Finish(lease, end);
      if (status) {
        ++ends;
      } else {
        EXPECT_EQ(status.error().kind, ErrorKind::kConflict) << status.error().message;
      }
    });
    EXPECT_EQ(ends, 1);
    const std::vector<Job> again = Claim();
    if (!again.empty()) ASSERT_OK(store_->Finish(LeaseOf(again.front()), MakeEnd()));
  }
  ExpectCountsAgree();
}

TEST_P(Threads, EventsAreNumberedWithoutGaps) {
  SubmitNew("j1");
  InThreads(8, [&](int thread) {
    for (int i = 0; i < 10; ++i) {
      const std::string type = std::to_string(thread) + "." + std::to_string(i);
      ASSERT_OK(StoreOf(thread).AppendEvents("j1", {MakeEvent(type + "a"), MakeEvent(type + "b")}));
    }
  });
  const std::vector<std::string> types = EventTypes("j1");
  ASSERT_EQ(types.size(), 161U);
  for (size_t i = 1; i < types.size(); i += 2) {
    EXPECT_EQ(types[i].substr(0, types[i].size() - 1), types[i + 1].substr(0, types[i].size() - 1))
        << "those of one call stay together";
  }
}

// All threads perform all operations: no thread waits forever, and the counts stay correct.
TEST_P(Threads, EverythingAtOnce) {
  InThreads(8, [&](int thread) {
    Store& store = StoreOf(thread);
    for (int i = 0; i < 25; ++i) {
      const std::string id = "j" + std::to_string(thread) + "-" + std::to_string(i);
      Job job = MakeJob(id, "t" + std::to_string(i % 3));
      job.idempotency_key = "k" + std::to_string(i);  // shared by all threads: each but the first conflicts
      job.request_digest = i % 2 == 0 ? "same" : id;
      job.deadline_ms = i % 5 == 0 ? kNow + 1 : 0;
      (void)store.Submit(job, {}, kNow + 10, {MakeEvent("submitted")});
      ClaimOptions options = ClaimAs("w", 2);
      options.now_ms = kNow + i % 3;
      std::vector<Job> jobs = Must(store.Claim(options));
      for (const Job& overdue : Must(store.TakeOverdue(options))) jobs.push_back(overdue);
      for (size_t n = 0; n < jobs.size(); ++n) {
        const Lease lease = LeaseOf(jobs[n]);
        (void)store.Cancel(jobs[n].id, "", MakeEnd(JobState::kCancelled));
        const std::string approval = "a" + id + std::to_string(n);
        const size_t choice = (static_cast<size_t>(i) + n) % 5;
        if (choice == 0) ASSERT_OK(store.Release(lease));
        if (choice == 1) ASSERT_OK(store.Retry(lease, MakeAttempt(1), kNow + 1, {MakeEvent("retry")}));
        if (choice == 2) ASSERT_OK(store.Finish(lease, MakeEnd()));
        if (choice == 3) ASSERT_OK(store.GiveUp(lease, MakeAttempt(1), MakeEnd(JobState::kDeadLettered)));
        if (choice == 4) {
          ASSERT_OK(store.AwaitApproval(lease, MakeApproval(approval, jobs[n]), {}));
          (void)store.AnswerApproval(approval, {"ada", n % 2 == 0, "", kNow}, MakeEnd(JobState::kRejected), {});
        }
      }
      ASSERT_OK(store.Purge(kNow + 5001, kNow + i, 1));
    }
  });
  ExpectCountsAgree();
}

INSTANTIATE_TEST_SUITE_P(Store, Threads, kKinds);

}  // namespace
}  // namespace caisson::store::testing
