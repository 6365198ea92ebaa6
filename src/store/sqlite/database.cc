#include "store/sqlite/database.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "store/sql/schema.h"
#include "store/sql/sql_store.h"
#include "store/sqlite/sqlite.h"

namespace caisson::store {
namespace sqlite {
namespace {

using sql::Durability;

// More readers than cores would only wait for each other.
constexpr int kReaders = 4;
// "Cais" in the file's header: other programs' files have another, and are refused.
constexpr int kApplicationId = 0x43616973;
// Bounded, so that the first call of a batch does not wait too long for the last.
constexpr size_t kMaxBatch = 256;

// Held as long as the database is open. The file stays: removing it would let two processes hold two locks.
Result<UniqueFd> TakeLock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return Error::System(errno, "open " + lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return Error::System(errno, "flock " + lock_path);
  return Error::Conflict("database " + path +
                         " is in use by another caissond: stop that one, or give this one a file of its own; several "
                         "caissond on one queue need PostgreSQL");
}

// SQLite would create the file readable for all users; the files beside it take over its mode.
Status MakeFile(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return Error::System(errno, "open database " + path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return Error::System(errno, "stat " + path);
  if (!S_ISREG(status.st_mode)) return Error::Invalid("database " + path + " is not a regular file");
  return {};
}

Result<int64_t> Pragma(Connection& connection, const std::string& name) {
  int64_t value = 0;
  CAISSON_TRY_VOID(connection.RunOnce("PRAGMA " + name, {}, [&](const sql::Row& row) { value = row.Int(0); }));
  return value;
}

// `PRAGMA user_version` is the number of steps that the file has seen.
Status Migrate(Connection& connection, const std::string& path) {
  CAISSON_TRY(const int64_t application, Pragma(connection, "application_id"));
  CAISSON_TRY(const int64_t tables, Pragma(connection, "schema_version"));  // 0: nothing was ever made in it
  if (tables != 0 && application != kApplicationId) {
    return Error::Invalid("database " + path + " belongs to another program: name another file");
  }
  CAISSON_TRY(const int64_t version, Pragma(connection, "user_version"));
  const std::vector<std::string> steps = sql::SchemaSteps({"TEXT", "WITHOUT ROWID"});
  if (version > static_cast<int64_t>(steps.size())) {
    return Error::Unsupported("database " + path + " has schema " + std::to_string(version) +
                              ", made by a newer caissond than this one, which knows " + std::to_string(steps.size()) +
                              ": run the newer one");
  }
  for (size_t step = static_cast<size_t>(version); step < steps.size(); ++step) {
    const std::string statements = "BEGIN IMMEDIATE;" + steps[step] +
                                   "PRAGMA application_id = " + std::to_string(kApplicationId) +
                                   "; PRAGMA user_version = " + std::to_string(step + 1) + "; COMMIT";
    CAISSON_TRY_VOID(connection.Execute(statements.c_str()));
  }
  return {};
}

Result<std::unique_ptr<Connection>> OpenWriter(const std::string& path) {
  CAISSON_TRY(std::unique_ptr<Connection> writer, Connection::Open(path, Access::kReadWrite));
  // journal_mode: readers do not wait for the writer, and a commit is one append and one fsync. It is kept in the file.
  // synchronous: FULL until the writer chooses by batch; see TryBatch.
  // wal_autocheckpoint: the log is copied into the file after 4,000 pages (16 MiB), by the commit that finds it so.
  //   Less often than SQLite's default of 1,000: pages that many jobs touch are copied once for all of them.
  //   journal_size_limit: shrinks a log that grew during a long read.
  CAISSON_TRY_VOID(
      writer->Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000; "
                      "PRAGMA journal_size_limit = 67108864"));
  CAISSON_TRY_VOID(Migrate(*writer, path));
  return writer;
}

}  // namespace

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  CAISSON_TRY(UniqueFd lock, TakeLock(path));
  CAISSON_TRY_VOID(MakeFile(path));
  CAISSON_TRY(std::unique_ptr<Connection> writer, OpenWriter(path));
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(std::move(lock), std::move(writer)));
  for (int i = 0; i < kReaders; ++i) {
    CAISSON_TRY(std::unique_ptr<Connection> reader, Connection::Open(path, Access::kReadOnly));
    database->idle_readers_.push_back(std::move(reader));
  }
  database->thread_ = std::thread(&SqliteDatabase::RunWriter, database.get());
  return database;
}

SqliteDatabase::~SqliteDatabase() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    closing_ = true;
    work_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  // The writer closes last: the last connection copies the log back, which a read-only one may not do.
  idle_readers_.clear();
}

Status SqliteDatabase::Write(Durability durability, const Transaction& transaction) {
  Call call{durability, &transaction, {}, false, {}};
  std::unique_lock<std::mutex> guard(mutex_);
  queue_.push_back(&call);
  work_.notify_one();
  call.woken.wait(guard, [&] { return call.done; });
  return std::move(call.status);
}

Status SqliteDatabase::Read(const Transaction& transaction) {
  std::unique_lock<std::mutex> guard(mutex_);
  reader_free_.wait(guard, [&] { return !idle_readers_.empty(); });
  std::unique_ptr<Connection> reader = std::move(idle_readers_.back());
  idle_readers_.pop_back();
  guard.unlock();

  Status status = reader->Execute("BEGIN");
  if (status) {
    status = transaction(*reader);
    Status ended = reader->Execute("COMMIT");
    if (status) status = std::move(ended);
  }

  guard.lock();
  idle_readers_.push_back(std::move(reader));
  reader_free_.notify_one();
  return status;
}

Status SqliteDatabase::Ping() {
  return Read([](sql::Session& session) -> Status {
    CAISSON_TRY_VOID(session.Run("SELECT count(*) FROM turns", {}));
    return {};
  });
}

std::string SqliteDatabase::Description() const { return std::string("sqlite ") + ::sqlite3_libversion(); }

void SqliteDatabase::RunWriter() {
  std::unique_lock<std::mutex> guard(mutex_);
  for (;;) {
    work_.wait(guard, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Batch prompt;
    Batch durable;
    while (!queue_.empty() && prompt.size() < kMaxBatch && durable.size() < kMaxBatch) {
      Call* call = queue_.front();
      queue_.pop_front();
      (call->durability == Durability::kPrompt ? prompt : durable).push_back(call);
    }
    guard.unlock();
    if (!prompt.empty()) RunBatch(prompt, Durability::kPrompt);
    if (!durable.empty()) RunBatch(durable, Durability::kDurable);
    guard.lock();
  }
}

void SqliteDatabase::RunBatch(const Batch& batch, Durability durability) {
  Status whole = TryBatch(batch, durability);
  if (!whole && batch.size() == 1) {
    batch.front()->status = std::move(whole);
  } else if (!whole) {
    // The batch had no effect. The failing call is unknown, so each call gets its own transaction and its own error.
    for (Call* call : batch) {
      Status alone = TryBatch({call}, durability);
      if (!alone) call->status = std::move(alone);
    }
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  for (Call* call : batch) {
    call->done = true;
    call->woken.notify_one();  // under the lock: a caller that sees `done` destroys the call
  }
}

Status SqliteDatabase::TryBatch(const Batch& batch, Durability durability) {
  // FULL: the commit returns after an fsync of the log. NORMAL: it leaves that to the next FULL one, or to the copying
  // of the log into the file. The choice counts for the transaction that begins next.
  Status begun = writer_->Execute(durability == Durability::kDurable ? "PRAGMA synchronous = FULL; BEGIN IMMEDIATE"
                                                                     : "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE");
  if (!begun) return begun;
  for (Call* call : batch) {
    call->status = RunInSavepoint(*call->transaction);
    if (!writer_->InTransaction()) {  // a full disk or the like undid all of it
      return call->status ? Status(Error::System(EIO, "the transaction ended on its own")) : call->status;
    }
  }
  Status committed = writer_->Execute("COMMIT");
  if (committed) return {};
  // A commit that failed because the disk is full leaves its transaction open.
  if (writer_->InTransaction()) (void)writer_->Execute("ROLLBACK");
  return committed;
}

Status SqliteDatabase::RunInSavepoint(const Transaction& transaction) {
  CAISSON_TRY_VOID(writer_->Run("SAVEPOINT one_call", {}));
  Status status = transaction(*writer_);
  if (!writer_->InTransaction()) return status;
  if (!status) CAISSON_TRY_VOID(writer_->Run("ROLLBACK TO one_call", {}));
  CAISSON_TRY_VOID(writer_->Run("RELEASE one_call", {}));
  return status;
}

}  // namespace sqlite

Result<std::unique_ptr<Store>> OpenSqlite(const std::string& path) {
  CAISSON_TRY(std::unique_ptr<sqlite::SqliteDatabase> database, sqlite::SqliteDatabase::Open(path));
  return std::unique_ptr<Store>(std::make_unique<sql::SqlStore>(std::move(database)));
}

}  // namespace caisson::store
