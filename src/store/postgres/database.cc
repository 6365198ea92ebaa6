#include "store/postgres/database.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>
#include <utility>

#include "store/postgres/postgres.h"
#include "store/sql/schema.h"
#include "store/sql/sql_store.h"

namespace caisson::store {
namespace postgres {
namespace {

using sql::Durability;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A server allows a hundred by default, for all clients. More connections would only wait for its disk and cores.
constexpr int kMaxConnections = 16;
constexpr int kShards = 64;
// How long a call waits for an absent server: long enough for a restart.
constexpr std::chrono::seconds kPatience{30};

// Between tries: doubles from 10 ms to a second, with a random factor between one half and one, so that the clients of
// a failed server do not all return at once.
class Backoff {
 public:
  explicit Backoff(steady_clock::time_point until) : until_(until) {}
  // False when there is no time left.
  bool Wait() {
    if (steady_clock::now() >= until_) return false;
    const int64_t jitter = steady_clock::now().time_since_epoch().count() % (next_ms_ / 2);
    std::this_thread::sleep_for(milliseconds(next_ms_ - jitter));
    next_ms_ = std::min<int64_t>(next_ms_ * 2, 1000);
    return true;
  }

 private:
  steady_clock::time_point until_;
  int64_t next_ms_ = 10;
};

}  // namespace

class PostgresDatabase::Borrowed {
 public:
  Borrowed(PostgresDatabase& pool, std::unique_ptr<Connection> connection)
      : pool_(&pool), connection_(std::move(connection)) {}
  Borrowed(Borrowed&&) = default;
  Borrowed& operator=(Borrowed&&) = delete;
  ~Borrowed() {
    if (connection_ == nullptr) return;
    const int64_t shard = connection_->Shard();
    if (connection_->trouble() == Trouble::kLost) connection_.reset();
    const std::lock_guard<std::mutex> guard(pool_->mutex_);
    if (connection_ == nullptr) {
      pool_->free_shards_.push_back(shard);
    } else {
      pool_->idle_.push_back(std::move(connection_));
    }
    pool_->returned_.notify_one();
  }
  Connection& operator*() const { return *connection_; }

 private:
  PostgresDatabase* pool_;
  std::unique_ptr<Connection> connection_;
};

PostgresDatabase::PostgresDatabase(std::string conninfo) : conninfo_(std::move(conninfo)) {
  // Consecutive rows from a random start: connections of this process never share a counter, and rarely share one with
  // another process.
  std::random_device device;
  const auto first = std::uniform_int_distribution<int64_t>(0, kShards - 1)(device);
  for (int i = 0; i < kMaxConnections; ++i) free_shards_.push_back((first + i) % kShards);
}

Result<std::unique_ptr<PostgresDatabase>> PostgresDatabase::Open(const std::string& conninfo) {
  std::unique_ptr<PostgresDatabase> database(new PostgresDatabase(conninfo));
  CAISSON_TRY(const Borrowed connection, database->Borrow(steady_clock::now()));
  CAISSON_TRY_VOID(database->Migrate(*connection));
  const int version = (*connection).ServerVersion();
  database->description_ = "postgres " + std::to_string(version / 10000) + "." + std::to_string(version % 10000);
  return database;
}

Status PostgresDatabase::Migrate(Connection& connection) {
  // One caissond at a time creates the tables; the others find them. Text is ordered by its bytes, as SQLite does it
  // and as the ids of jobs need it, whatever the database's language.
  const std::vector<std::string> steps = sql::SchemaSteps({"TEXT COLLATE \"C\"", ""});
  CAISSON_TRY(const std::string version,
              connection.Execute("BEGIN; SELECT pg_advisory_xact_lock(4855714671093448705); "
                                 "CREATE TABLE IF NOT EXISTS caisson_schema (steps BIGINT NOT NULL); "
                                 "CREATE TABLE IF NOT EXISTS caisson_connections "
                                 "(id TEXT PRIMARY KEY, last_mark BIGINT NOT NULL, used TIMESTAMPTZ NOT NULL); "
                                 "DELETE FROM caisson_connections WHERE used < now() - interval '1 day'; "
                                 "SELECT coalesce(max(steps), 0) FROM caisson_schema"));
  const size_t seen = std::stoul(version);
  if (seen > steps.size()) {
    CAISSON_TRY_VOID(connection.Execute("ROLLBACK"));
    return Error::Unsupported("the PostgreSQL database has schema " + version +
                              ", made by a newer caissond than this one, which knows " + std::to_string(steps.size()) +
                              ": run the newer one");
  }
  for (size_t step = seen; step < steps.size(); ++step) {
    CAISSON_TRY_VOID(connection.Execute(steps[step].c_str()));
    CAISSON_TRY_VOID(
        connection.Run("INSERT INTO caisson_schema (steps) VALUES ($1)", {static_cast<int64_t>(step) + 1}));
  }
  CAISSON_TRY_VOID(connection.Execute("COMMIT"));
  return {};
}

Result<PostgresDatabase::Borrowed> PostgresDatabase::Borrow(Time until) {
  Backoff backoff(until);
  std::unique_lock<std::mutex> guard(mutex_);
  for (;;) {
    returned_.wait(guard, [&] { return !idle_.empty() || !free_shards_.empty(); });
    if (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      if (!connection->Alive()) {
        free_shards_.push_back(connection->Shard());
        continue;
      }
      return Borrowed(*this, std::move(connection));
    }
    const int64_t shard = free_shards_.back();
    free_shards_.pop_back();
    guard.unlock();
    Result<std::unique_ptr<Connection>> made = Connection::Open(conninfo_);
    if (made) {
      (*made)->SetShard(shard);
      return Borrowed(*this, *std::move(made));
    }
    guard.lock();
    free_shards_.push_back(shard);
    returned_.notify_one();
    if (made.error().kind != ErrorKind::kSystem) return std::move(made).error();
    guard.unlock();
    if (!backoff.Wait()) return std::move(made).error();
    guard.lock();
  }
}

Status PostgresDatabase::Write(Durability durability, const Transaction& transaction) {
  return RunPatiently([durability](Connection& connection) { return connection.BeginWriting(durability); },
                      transaction);
}

Status PostgresDatabase::Read(const Transaction& transaction) {
  // A read-only transaction has no effect at COMMIT, so it may be run again.
  return RunPatiently([](Connection& connection) { return connection.BeginReading(); }, transaction);
}

Status PostgresDatabase::Ping() {
  CAISSON_TRY(const Borrowed connection, Borrow(steady_clock::now()));
  CAISSON_TRY_VOID((*connection).Execute("SELECT count(*) FROM turns"));
  return {};
}

Status PostgresDatabase::RunPatiently(const Begin& begin, const Transaction& transaction) {
  const Time until = steady_clock::now() + kPatience;
  for (Backoff backoff(until);;) {
    Try tried;
    {
      CAISSON_TRY(const Borrowed connection, Borrow(until));
      tried = TryOnce(*connection, begin, transaction);
    }
    if (tried.fate == Fate::kUnknown) {
      CAISSON_TRY(tried.fate, FateOf(tried.mark, until));
      if (tried.fate == Fate::kDecided) return {};
    }
    if (tried.fate == Fate::kDecided || !backoff.Wait()) return std::move(tried.status);
  }
}

PostgresDatabase::Try PostgresDatabase::TryOnce(Connection& connection, const Begin& begin,
                                                const Transaction& transaction) {
  Try tried;
  const int64_t mark_before = connection.mark().number;
  tried.status = begin(connection);
  if (tried.status) tried.status = transaction(connection);
  const bool to_be_committed = tried.status.has_value();
  if (to_be_committed) tried.status = connection.Commit();
  if (tried.status) return tried;
  if (connection.trouble() != Trouble::kLost) connection.Rollback();
  const Trouble trouble = connection.trouble();
  if (trouble == Trouble::kTransient || trouble == Trouble::kLost) tried.fate = Fate::kNothing;
  if (trouble == Trouble::kLost && to_be_committed && connection.mark().number != mark_before) {
    tried.fate = Fate::kUnknown;
    tried.mark = connection.mark();
  }
  return tried;
}

Result<PostgresDatabase::Fate> PostgresDatabase::FateOf(const Connection::Mark& mark, Time until) {
  for (Backoff backoff(until);;) {
    CAISSON_TRY(const Borrowed connection, Borrow(until));
    Result<bool> committed = (*connection).WasCommitted(mark);
    if (committed) return *committed ? Fate::kDecided : Fate::kNothing;
    if ((*connection).trouble() == Trouble::kFinal || !backoff.Wait()) {
      return std::move(committed).error().In(
          "the connection was lost during COMMIT, and its outcome is unknown; look at the job before "
          "trying again");
    }
  }
}

}  // namespace postgres

Result<std::unique_ptr<Store>> OpenPostgres(const std::string& conninfo) {
  CAISSON_TRY(std::unique_ptr<postgres::PostgresDatabase> database, postgres::PostgresDatabase::Open(conninfo));
  return std::unique_ptr<Store>(std::make_unique<sql::SqlStore>(std::move(database)));
}

}  // namespace caisson::store
