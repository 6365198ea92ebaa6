// Tests the faults that only a database in one file can have: those of the file.
#include "store/sqlite/sqlite.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "conformance/store_fixture.h"
#include "store/sql/claiming.h"
#include "store/sqlite/connection.h"

namespace caisson::store::testing {
namespace {

class SqliteFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/caisson-sqlite-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    path_ = directory_ + "/jobs.db";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Store> Open() {
    Result<std::unique_ptr<Store>> store = OpenSqlite(path_);
    EXPECT_TRUE(store) << store.error().message;
    return *std::move(store);
  }
  // Fills the file and closes it.
  void Fill(int jobs) {
    const std::unique_ptr<Store> store = Open();
    for (int i = 0; i < jobs; ++i) ASSERT_OK(store->Submit(MakeJob("j" + std::to_string(i)), {}, 0, {}));
  }
  // Executes statements on the closed file, as the sqlite3 shell would.
  void Execute(const std::string& statements) {
    auto connection = sqlite::Connection::Open(path_, sqlite::Access::kReadWrite);
    ASSERT_TRUE(connection) << connection.error().message;
    ASSERT_OK((*connection)->Execute(statements.c_str()));
  }
  // Returns the first error of opening and using the file; empty when there is none.
  std::string Trouble() {
    Result<std::unique_ptr<Store>> store = OpenSqlite(path_);
    if (!store) return store.error().message;
    JobFilter all;
    all.limit = 1000;
    const Result<std::vector<Job>> jobs = (*store)->List(all);
    if (!jobs) return jobs.error().message;
    const Result<Submitted> submitted = (*store)->Submit(MakeJob("new"), {}, 0, {});
    return submitted ? "" : submitted.error().message;
  }

  std::string directory_;
  std::string path_;
};

::testing::AssertionResult Says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

TEST_F(SqliteFile, IsItsOwnersOnly) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_OK(store->Submit(MakeJob("j1"), {}, 0, {}));
  for (const std::string suffix : {"", "-wal", "-shm", ".lock"}) {
    struct stat status {};
    ASSERT_EQ(::stat((path_ + suffix).c_str(), &status), 0) << suffix;
    EXPECT_EQ(status.st_mode & 0777, 0600U) << suffix;
  }
}

TEST_F(SqliteFile, NeedsItsDirectory) {
  path_ = directory_ + "/missing/jobs.db";
  EXPECT_TRUE(Says(Trouble(), "No such file or directory"));
}

TEST_F(SqliteFile, HasOneProcess) {
  std::unique_ptr<Store> store = Open();
  const Result<std::unique_ptr<Store>> second = OpenSqlite(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::kConflict);
  EXPECT_TRUE(Says(second.error().message, "need PostgreSQL"));
  store.reset();
  Open();
}

TEST_F(SqliteFile, OfANewerProgramIsRefused) {
  Fill(1);
  Execute("PRAGMA user_version = 999");
  EXPECT_TRUE(Says(Trouble(), "newer caissond"));
}

TEST_F(SqliteFile, OfAnotherProgramIsRefused) {
  { const std::ofstream file(path_); }
  Execute("CREATE TABLE theirs (x)");
  EXPECT_TRUE(Says(Trouble(), "another program"));
}

TEST_F(SqliteFile, ThatIsNoDatabaseIsRefused) {
  std::ofstream(path_) << std::string(10'000, 'x');
  EXPECT_TRUE(Says(Trouble(), "no SQLite database"));
}

TEST_F(SqliteFile, ThatLostItsEndIsReportedAsDamaged) {
  Fill(200);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  EXPECT_TRUE(Says(Trouble(), "restore it from a backup"));
}

TEST_F(SqliteFile, WithOverwrittenPagesIsReportedAsDamaged) {
  Fill(200);
  const auto size = std::filesystem::file_size(path_);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(size - 4096, '\x5a');
  file.close();
  EXPECT_TRUE(Says(Trouble(), "restore it from a backup"));
}

TEST_F(SqliteFile, LockedBySomebodyElseIsReported) {
  Fill(1);
  auto intruder = sqlite::Connection::Open(path_, sqlite::Access::kReadWrite);
  ASSERT_TRUE(intruder);
  const std::unique_ptr<Store> store = Open();
  ASSERT_OK((*intruder)->Execute("BEGIN IMMEDIATE"));
  const Result<Submitted> submitted = store->Submit(MakeJob("j9"), {}, 0, {});
  ASSERT_FALSE(submitted);
  EXPECT_TRUE(Says(submitted.error().message, "another program keeps the database locked"));
  EXPECT_OK(store->Find("j0"));  // readers do not wait for a writer
  ASSERT_OK((*intruder)->Execute("ROLLBACK"));
  EXPECT_OK(store->Submit(MakeJob("j9"), {}, 0, {}));
}

// Runs `body` in a child, because mounts and limits belong to a process. `body` returns the fault it found.
std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string found = body();
    const ssize_t written = ::write(ends[1], found.data(), found.size());
    ::_exit(written == static_cast<ssize_t>(found.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string found;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    found.append(buffer, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << found;
  return found;
}

TEST_F(SqliteFile, OnAReadOnlyFileSystemIsRefused) {
  if (::geteuid() != 0) {
    SkipUnlessRequired("root", "mounting needs root");
    return;
  }
  Fill(1);
  const std::string found = InChild([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(directory_.c_str(), directory_.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, directory_.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return "skip";
    }
    return Trouble();
  });
  if (found == "skip") {
    SkipUnlessRequired("root", "no right to mount");
    return;
  }
  EXPECT_TRUE(Says(found, "Read-only file system"));
}

// A disk of one megabyte.
TEST_F(SqliteFile, OnAFullDiskNothingIsHalfDone) {
  if (::geteuid() != 0) {
    SkipUnlessRequired("root", "mounting needs root");
    return;
  }
  const std::string found = InChild([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=1m") != 0) {
      return "skip";
    }
    const std::unique_ptr<Store> store = Open();
    std::string full;
    int accepted = 0;
    for (; accepted < 10'000; ++accepted) {
      Job job = MakeJob("j" + std::to_string(10'000 + accepted));
      job.request = std::string(20'000, 'r');
      const Result<Submitted> submitted = store->Submit(job, {}, 0, {MakeEvent("submitted")});
      if (!submitted) {
        full = submitted.error().message;
        if (submitted.error().errno_value != ENOSPC) full += " without ENOSPC";
        break;
      }
    }
    JobFilter all;
    all.limit = 100'000;
    const auto jobs = store->List(all);
    if (!jobs) return jobs.error().message;
    if (static_cast<int>(jobs->size()) != accepted) return "a refused job is there";
    if (Must(store->Find("j10000")).request.size() != 20'000) return "an accepted job is not whole";
    if (Must(store->Count(kNow)).waiting_by_tenant.at("acme") != accepted) return "counted wrongly";
    return full;
  });
  if (found == "skip") {
    SkipUnlessRequired("root", "no right to mount");
    return;
  }
  EXPECT_TRUE(Says(found, "disk is full: free some space"));
  EXPECT_FALSE(Says(found, "without ENOSPC"));
}

// Claims must not become slower as the queue becomes longer: every access to the table of jobs uses the name of a job
// or an index that holds only the rows to take or move, and no query sorts.
TEST_F(SqliteFile, ClaimsWalkAlongIndexes) {
  Fill(1);
  auto connection = sqlite::Connection::Open(path_, sqlite::Access::kReadWrite);
  ASSERT_TRUE(connection);
  const std::set<std::string> allowed = {"PRIMARY",       "jobs_ready",   "jobs_delayed",
                                         "jobs_deadline", "jobs_overdue", "jobs_leased"};
  int accesses = 0;
  for (const char* statement : {sql::kPromote, sql::kMarkOverdue, sql::kTenantsReady, sql::kServe, sql::kClaimNext,
                                sql::kTakeOverdue, sql::kRenew}) {
    const std::string explain = std::string("EXPLAIN QUERY PLAN ") + statement;
    ASSERT_OK((*connection)->RunOnce(explain, {}, [&](const sql::Row& row) {
      const std::string step = row.Text(3);
      EXPECT_EQ(step.find("TEMP B-TREE"), std::string::npos) << statement << "\n" << step;
      std::smatch access;
      if (!std::regex_search(step, std::regex("^(SCAN|SEARCH) jobs( .*)?$"))) return;
      ++accesses;
      ASSERT_TRUE(std::regex_search(step, access, std::regex("USING (COVERING )?(INDEX )?(\\w+)"))) << step;
      EXPECT_EQ(allowed.count(access[3]), 1U) << statement << "\n" << step;
    }));
  }
  EXPECT_EQ(accesses, 12);
}

}  // namespace
}  // namespace caisson::store::testing
