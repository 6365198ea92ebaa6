#include "conformance/store_fixture.h"

#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"
#include "support/postgres_server.h"

namespace caisson::store::testing {
namespace {

class SqliteBackend final : public Backend {
 public:
  SqliteBackend() {
    char directory[] = "/tmp/caisson-store-XXXXXX";
    EXPECT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
  }
  SqliteBackend(const SqliteBackend&) = delete;
  SqliteBackend& operator=(const SqliteBackend&) = delete;
  ~SqliteBackend() override { std::filesystem::remove_all(directory_); }
  Result<std::unique_ptr<Store>> Open() override { return OpenSqlite(directory_ + "/jobs.db"); }
  bool Shared() const override { return false; }

 private:
  std::string directory_;
};

class PostgresBackend final : public Backend {
 public:
  explicit PostgresBackend(std::string conninfo) : conninfo_(std::move(conninfo)) {}
  Result<std::unique_ptr<Store>> Open() override { return OpenPostgres(conninfo_); }
  bool Shared() const override { return true; }

 private:
  std::string conninfo_;
};

}  // namespace

std::unique_ptr<Backend> MakeBackend(const std::string& kind, std::string* reason) {
  if (kind == "sqlite") return std::make_unique<SqliteBackend>();
  caisson::testing::PostgresServer* server = caisson::testing::PostgresServer::Get(reason);
  if (server == nullptr) return nullptr;
  return std::make_unique<PostgresBackend>(server->NewDatabase());
}

Job MakeJob(const std::string& id, const std::string& tenant) {
  Job job;
  job.id = id;
  job.tenant = tenant;
  job.submitter = "token:ci";
  job.request_id = "request of " + id;
  job.request = R"({"checks": ["unit"], "name": ")" + id + "\"}";
  job.request_digest = "digest of " + id;
  job.submitted_ms = kNow;
  job.max_attempts = 3;
  return job;
}

Event MakeEvent(const std::string& type) { return {0, kNow, type, R"({"of": ")" + type + "\"}"}; }

End MakeEnd(JobState state) {
  End end;
  end.state = state;
  end.status = "pass";
  end.now_ms = kNow + 5000;
  end.result = R"({"status": "pass"})";
  end.events = {MakeEvent("ended")};
  return end;
}

Attempt MakeAttempt(int64_t number) {
  return {number, "infrastructure_error", "the launcher is gone", "w1", kNow, kNow + 100};
}

Approval MakeApproval(const std::string& id, const Job& job, int64_t quorum) {
  Approval approval;
  approval.id = id;
  approval.job_id = job.id;
  approval.tenant = job.tenant;
  approval.document = R"({"question": "network?"})";
  approval.plan_digest = "plan";
  approval.quorum = quorum;
  approval.requested_ms = kNow;
  approval.expires_ms = kNow + 60'000;
  return approval;
}

ClaimOptions ClaimAs(const std::string& worker, int64_t max_jobs) {
  ClaimOptions options;
  options.worker = worker;
  options.now_ms = kNow;
  options.lease_ms = kLeaseMs;
  options.max_jobs = max_jobs;
  return options;
}

void InThreads(int count, const std::function<void(int)>& body) {
  std::mutex mutex;
  std::condition_variable ready;
  int arrived = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      {
        std::unique_lock<std::mutex> guard(mutex);
        if (++arrived == count) ready.notify_all();
        ready.wait(guard, [&] { return arrived == count; });
      }
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void SkipUnlessRequired(const std::string& kind, const std::string& reason) {
  const char* listed = ::getenv("CAISSON_MUST_RUN");
  std::istringstream kinds(listed == nullptr ? "" : listed);
  for (std::string required; std::getline(kinds, required, ',');) {
    if (required == kind) FAIL() << reason << " (CAISSON_MUST_RUN lists " << kind << ")";
  }
  GTEST_SKIP() << reason;
}

void StoreTest::SetUp() {
  std::string reason;
  backend_ = MakeBackend(GetParam(), &reason);
  if (backend_ == nullptr) {
    SkipUnlessRequired(GetParam(), reason);
    return;
  }
  Reopen();
}

void StoreTest::Reopen() {
  store_.reset();
  Result<std::unique_ptr<Store>> store = backend_->Open();
  ASSERT_TRUE(store) << store.error().message;
  store_ = *std::move(store);
}

Job StoreTest::Submit(const Job& job, int64_t key_expires_ms) {
  const Result<Submitted> submitted = store_->Submit(job, {}, key_expires_ms, {MakeEvent("submitted")});
  EXPECT_TRUE(submitted) << submitted.error().message;
  return submitted->job;
}

std::vector<Job> StoreTest::Claim(int64_t max_jobs, int64_t now_ms) {
  ClaimOptions options = ClaimAs("w1", max_jobs);
  options.now_ms = now_ms;
  const Result<std::vector<Job>> jobs = store_->Claim(options);
  EXPECT_TRUE(jobs) << jobs.error().message;
  return *jobs;
}

Job StoreTest::ClaimOne(int64_t now_ms) {
  const std::vector<Job> jobs = Claim(1, now_ms);
  EXPECT_EQ(jobs.size(), 1U);
  return jobs.empty() ? Job() : jobs.front();
}

Job StoreTest::Find(const std::string& job_id) {
  const Result<Job> job = store_->Find(job_id);
  EXPECT_TRUE(job) << job.error().message;
  return *job;
}

std::vector<std::string> StoreTest::EventTypes(const std::string& job_id) {
  const Result<std::vector<Event>> events = store_->Events(job_id, 0, 1000);
  EXPECT_TRUE(events) << events.error().message;
  std::vector<std::string> types;
  for (const Event& event : *events) {
    types.push_back(event.type);
    EXPECT_EQ(event.seq, static_cast<int64_t>(types.size())) << "events are numbered from 1, without gaps";
  }
  return types;
}

Job StoreTest::SubmitAwaiting(const std::string& job_id, const std::string& approval_id, int64_t quorum) {
  SubmitNew(job_id);
  const Job job = ClaimOne();
  EXPECT_EQ(job.id, job_id);
  EXPECT_OK(store_->AwaitApproval(LeaseOf(job), MakeApproval(approval_id, job, quorum), {MakeEvent("asked")}));
  return job;
}

Counts StoreTest::Count(int64_t now_ms) {
  const Result<Counts> counts = store_->Count(now_ms);
  EXPECT_TRUE(counts) << counts.error().message;
  return *counts;
}

void StoreTest::ExpectCountsAgree() {
  JobFilter filter;
  filter.limit = 1'000'000;
  const Result<std::vector<Job>> jobs = store_->List(filter);
  ASSERT_TRUE(jobs) << jobs.error().message;
  std::map<std::string, int64_t> waiting;
  std::map<std::string, int64_t> leased;
  std::map<std::string, int64_t> states;
  for (const char* name : kJobStateNames) states[name] = 0;
  for (const Job& job : *jobs) {
    ++states[Name(job.state)];
    if (!job.lease_token.empty()) {
      ++leased[job.tenant];
    } else if (job.state == JobState::kQueued || job.state == JobState::kAwaitingApproval) {
      ++waiting[job.tenant];
    }
  }
  const Counts counts = Count();
  EXPECT_EQ(counts.by_state, states);
  EXPECT_EQ(counts.waiting_by_tenant, waiting);
  EXPECT_EQ(counts.leased_by_tenant, leased);
}

}  // namespace caisson::store::testing
