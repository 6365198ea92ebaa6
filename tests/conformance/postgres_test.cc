// Tests the faults that only a database behind a connection can have: those of the connection.
#include "store/postgres/postgres.h"

#include <libpq-fe.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "conformance/store_fixture.h"
#include "store/postgres/connection.h"
#include "store/sql/claiming.h"
#include "support/cutting_proxy.h"
#include "support/postgres_server.h"

namespace caisson::store::testing {
namespace {

using caisson::testing::PostgresServer;

class Postgres : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    server_ = PostgresServer::Get(&reason);
    if (server_ == nullptr) {
      SkipUnlessRequired("postgres", reason);
      return;
    }
    conninfo_ = server_->NewDatabase();
  }

  std::unique_ptr<Store> Open() const { return Must(OpenPostgres(conninfo_)); }
  void Execute(const std::string& statement) const {
    const auto connection = Must(postgres::Connection::Open(conninfo_));
    ASSERT_NE(connection, nullptr);
    EXPECT_OK(connection->Execute(statement.c_str()));
  }

  PostgresServer* server_ = nullptr;
  std::string conninfo_;
};

// Workers of two caissond processes that submit `kJobs` jobs and run them all, whatever happens to their connections.
class Workload {
 public:
  Workload(Store& one, Store& other) : stores_{&one, &other} {}

  // Returns when every job has ended.
  void Run() {
    InThreads(kThreads, [this](int thread) {
      Store& store = *stores_[thread % 2];
      for (int i = thread; i < kJobs; i += kThreads) {
        Job job = MakeJob("j" + std::to_string(1000 + i), "t" + std::to_string(i % 3));
        job.idempotency_key = job.id;
        const Submitted submitted = Must(store.Submit(job, {}, 0, {MakeEvent("submitted")}));
        EXPECT_FALSE(submitted.existed) << "a call that was run again found its own work: " << job.id;
        Progress();
      }
      while (ended_ < kJobs && !::testing::Test::HasFailure()) Serve(store);
      progressed_.notify_all();
    });
  }

  // Waits until `count` submissions and ends were made; returns false when there will be no more.
  bool WaitForProgress(int count) {
    std::unique_lock<std::mutex> guard(mutex_);
    progressed_.wait(guard, [&] { return progress_ >= count || ended_ >= kJobs || ::testing::Test::HasFailure(); });
    return progress_ >= count && ended_ < kJobs && !::testing::Test::HasFailure();
  }
  std::map<std::string, std::string> ends() const { return ends_; }
  static constexpr int kJobs = 120;

 private:
  void Progress() {
    const std::lock_guard<std::mutex> guard(mutex_);
    ++progress_;
    progressed_.notify_all();
  }
  void Serve(Store& store) {
    for (const Job& job : Must(store.Claim(ClaimAs("w", 2)))) {
      End end = MakeEnd();
      end.result = job.lease_token;
      if (!Held(store.Advance(LeaseOf(job), JobState::kRunning, kNow, {MakeEvent("running")}))) continue;
      if (!Held(store.AppendEvents(job.id, {MakeEvent("output")}))) continue;
      if (!Held(store.Finish(LeaseOf(job), end))) continue;
      ++ended_;
      {
        const std::lock_guard<std::mutex> guard(mutex_);
        EXPECT_TRUE(ends_.emplace(job.id, job.lease_token).second) << job.id << " ended twice";
      }
      Progress();
    }
  }
  // A claim that the server's crash undid is not a failure; every other error is.
  static bool Held(const Status& status) {
    if (status) return true;
    EXPECT_EQ(status.error().kind, ErrorKind::kConflict) << status.error().message;
    return false;
  }

  static constexpr int kThreads = 8;
  Store* stores_[2];
  std::atomic<int> ended_{0};
  std::mutex mutex_;
  std::condition_variable progressed_;
  int progress_ = 0;
  std::map<std::string, std::string> ends_;
};

// Checks that every job has the end that its worker was told, and no other.
void ExpectEnds(Store& store, const std::map<std::string, std::string>& ends) {
  EXPECT_EQ(ends.size(), static_cast<size_t>(Workload::kJobs));
  for (const auto& [id, token] : ends) {
    const Job job = Must(store.Find(id));
    EXPECT_EQ(job.state, JobState::kSucceeded);
    EXPECT_EQ(job.result, token);
    std::map<std::string, int> types;
    int64_t seq = 0;
    for (const Event& event : Must(store.Events(id, 0, 100))) {
      ++types[event.type];
      EXPECT_EQ(event.seq, ++seq);
    }
    EXPECT_EQ(types["submitted"], 1) << id;
    EXPECT_EQ(types["ended"], 1) << id;
  }
  const Counts counts = Must(store.Count(kNow));
  EXPECT_TRUE(counts.waiting_by_tenant.empty());
  EXPECT_TRUE(counts.leased_by_tenant.empty());
}

// Checks that, while the server lives, no committed change is undone and none is made twice.
void ExpectEventsOnce(Store& store, const std::map<std::string, std::string>& ends) {
  for (const auto& [id, token] : ends) {
    std::map<std::string, int> types;
    for (const Event& event : Must(store.Events(id, 0, 100))) ++types[event.type];
    EXPECT_EQ(types, (std::map<std::string, int>{{"ended", 1}, {"output", 1}, {"running", 1}, {"submitted", 1}})) << id;
  }
}

TEST_F(Postgres, ConnectionsThatAreKilledCostNothingAndDoNothingTwice) {
  const std::unique_ptr<Store> one = Open();
  const std::unique_ptr<Store> other = Open();
  Workload workload(*one, *other);
  const auto connection = Must(postgres::Connection::Open(conninfo_));
  int64_t killed = 0;
  std::thread killer([&] {
    // Kills the next connection only after some progress, so that the work also ends on a slow machine.
    for (int progress = 2; workload.WaitForProgress(progress); progress += 2) {
      killed += Must(
          connection->Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                          "AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random() LIMIT 1",
                          {}));
    }
  });
  workload.Run();
  killer.join();
  EXPECT_GT(killed, 10);
  ExpectEnds(*one, workload.ends());
  ExpectEventsOnce(*one, workload.ends());
}

TEST_F(Postgres, ACommitWithoutAnAnswerIsDoneOnce) {
  char directory[] = "/tmp/caisson-proxy-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  {
    caisson::testing::CuttingProxy proxy(server_->directory(), directory);
    const std::string through = conninfo_ + " host=" + directory;
    const std::unique_ptr<Store> one = Must(OpenPostgres(through));
    const std::unique_ptr<Store> other = Must(OpenPostgres(through));
    ASSERT_TRUE(one != nullptr && other != nullptr);
    Workload workload(*one, *other);
    workload.Run();
    EXPECT_GT(proxy.cuts(), 50);
    ExpectEnds(*one, workload.ends());
    ExpectEventsOnce(*one, workload.ends());
  }
  std::filesystem::remove_all(directory);
}

TEST_F(Postgres, ACrashOfTheServerIsAPause) {
  const std::unique_ptr<Store> one = Open();
  const std::unique_ptr<Store> other = Open();
  Workload workload(*one, *other);
  std::thread operator_thread([&] {
    ASSERT_TRUE(workload.WaitForProgress(Workload::kJobs));
    server_->Crash();
    server_->Start();
  });
  workload.Run();
  operator_thread.join();
  ExpectEnds(*one, workload.ends());
}

TEST_F(Postgres, SeveralThatStartAtOnceMakeTheTablesOnce) {
  InThreads(6, [&](int thread) {
    const std::unique_ptr<Store> store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_OK(store->Submit(MakeJob("j" + std::to_string(thread)), {}, 0, {}));
  });
  EXPECT_EQ(Must(Open()->List({})).size(), 6U);
}

TEST_F(Postgres, OfANewerProgramIsRefused) {
  Open();
  Execute("INSERT INTO caisson_schema VALUES (999)");
  const auto store = OpenPostgres(conninfo_);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(store.error().message.find("newer caissond"), std::string::npos) << store.error().message;
}

TEST_F(Postgres, ThatKeepsNoUtf8IsRefused) {
  Execute("DROP DATABASE IF EXISTS latin");
  Execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
  const auto store = OpenPostgres(conninfo_ + " dbname=latin");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(store.error().message.find("ENCODING 'UTF8'"), std::string::npos) << store.error().message;
}

TEST_F(Postgres, ThatIsNotThereIsReportedAtOnce) {
  const auto store = OpenPostgres("host=/nowhere user=nobody dbname=none");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().kind, ErrorKind::kSystem);
  EXPECT_NE(store.error().message.find("is it running"), std::string::npos) << store.error().message;
}

// As in SqliteFile.ClaimsWalkAlongIndexes: claims access jobs only by their names and along the indexes of the queue.
TEST_F(Postgres, ClaimsWalkAlongIndexes) {
  Open();
  const auto connection = Must(postgres::Connection::Open(conninfo_));
  const std::map<const char*, std::string> statements = {{sql::kPromote, "(1)"},
                                                         {sql::kMarkOverdue, "(1)"},
                                                         {sql::kTenantsReady, ""},

                                                         {sql::kClaimNext, "('a', 't', 'w', 1, 1)"},
                                                         {sql::kTakeOverdue, "(1, 't', 'w', 1)"},
                                                         {sql::kRenew, "('a', 't', 1)"}};
  const std::set<std::string> allowed = {"jobs_pkey",   "jobs_ready", "jobs_delayed", "jobs_deadline", "jobs_overdue",
                                         "jobs_leased", "turns_pkey", "turns_latest", "requests_pkey"};
  int number = 0;
  for (const auto& [statement, arguments] : statements) {
    const std::string name = "p" + std::to_string(++number);
    ASSERT_OK(connection->Execute(("PREPARE " + name + " AS " + statement).c_str()));
    std::string plan;
    ASSERT_OK(connection->RunOnce("EXPLAIN EXECUTE " + name + arguments, {},
                                  [&](const sql::Row& row) { plan += row.Text(0) + "\n"; }));
    EXPECT_EQ(plan.find("Seq Scan"), std::string::npos) << plan;
    EXPECT_EQ(plan.find("Sort "), std::string::npos) << plan;
    for (size_t at = plan.find(" using "); at != std::string::npos; at = plan.find(" using ", at + 1)) {
      const std::string index = plan.substr(at + 7, plan.find(' ', at + 7) - at - 7);
      EXPECT_EQ(allowed.count(index), 1U) << index << "\n" << plan;
    }
  }
}

}  // namespace
}  // namespace caisson::store::testing
