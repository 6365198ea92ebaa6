// A Database of one SQLite file: one thread that writes, a few connections that read.
//
// SQLite has one writer at a time and an fsync takes milliseconds, so writers share it: calls are queued, and the
// writer's thread runs all waiting calls inside one transaction, each in its own savepoint so that a failing call
// undoes only itself, commits once, and wakes the callers. With n callers, each pays an nth of the fsync.
//
// Calls that need not be durable do not wait for the disk: the prompt calls of the queue run first, in a transaction
// that is committed without fsync, and their callers are woken before the durable ones begin. So a prompt call waits
// for at most the one fsync that is under way when it arrives. (It could wait for none if durable calls were also
// committed without fsync and woken after a later fsync of the log; but then readers could see the end of a job that a
// power cut undoes, and the job would visibly end twice.)
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
  // No call may be active any more.
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
  // An error if the whole transaction failed; each call also has its own status.
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
