// A Database of one SQLite file: one thread that writes, a few connections that read.
//
// SQLite has one writer at a time and a disk takes milliseconds to say that something is on it, so writers share: calls
// are queued, and the writer's thread runs all that wait inside one transaction, each in a savepoint of its own so that
// one that fails undoes only itself, commits once, and wakes them. With n callers a commit to disk costs each an nth.
//
// Calls that need not be on the disk do not wait for it: of what is queued, the prompt ones go first, in a transaction
// that is committed without fsync, and their callers are woken before the durable ones begin. So a prompt call waits
// for at most the one fsync that is under way when it comes. (It could wait for none if durable calls were committed
// without fsync too, and woken after a later one of the log; but then others could read an end of a job that a power
// cut undoes, and a job would end twice in the eyes of the world.)
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "store/sqlite/connection.h"

namespace caisson::store::sqlite {

class SqliteDatabase final : public sql::Database {
 public:
  static Result<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;
  // Nobody may be inside a call any more.
  ~SqliteDatabase() override;

  Status Write(sql::Durability durability, const Transaction& transaction) override;
  Status Read(const Transaction& transaction) override;
  Status Ping() override;
  std::string Description() const override;

 private:
  struct Call {
    sql::Durability durability;
    const Transaction* transaction;
    Status status;
    bool done = false;
    std::condition_variable woken;
  };
  using Batch = std::vector<Call*>;

  SqliteDatabase(UniqueFd lock, std::unique_ptr<Connection> writer)
      : lock_(std::move(lock)), writer_(std::move(writer)) {}

  void RunWriter();
  // Everything below runs in the writer's thread.
  void RunBatch(const Batch& batch, sql::Durability durability);
  // An error when the transaction as a whole came to nothing; each call has its own status besides.
  Status TryBatch(const Batch& batch, sql::Durability durability);
  Status RunInSavepoint(const Transaction& transaction);

  UniqueFd lock_;
  std::unique_ptr<Connection> writer_;

  std::mutex mutex_;  // of all below
  std::condition_variable work_;
  std::deque<Call*> queue_;
  bool closing_ = false;
  std::condition_variable reader_free_;
  std::vector<std::unique_ptr<Connection>> idle_readers_;

  std::thread thread_;
};

}  // namespace caisson::store::sqlite
