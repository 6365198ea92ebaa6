// A Database of a bounded number of connections to a server, each for one transaction at a time.
//
// Transactions are READ COMMITTED and lock the rows they decide by. Durable ones commit with synchronous_commit on,
// the others without: the server writes those to disk within a moment, in order.
//
// A transaction that writes begins with a mark of its own. If the connection is lost during COMMIT, the next connection
// looks for the mark and runs the call again only if the mark is missing. (pg_xact_status reports the fate of a
// transaction by its number; but after a crash the server assigns the numbers of lost transactions to new ones.)
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/postgres/connection.h"

namespace caisson::store::postgres {

class PostgresDatabase final : public sql::Database {
 public:
  static Result<std::unique_ptr<PostgresDatabase>> Open(const std::string& conninfo);

  Status Write(sql::Durability durability, const Transaction& transaction) override;
  Status Read(const Transaction& transaction) override;
  Status Ping() override;
  std::string Description() const override { return description_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Begin = std::function<Status(Connection&)>;

  // How far one try got.
  enum class Fate : uint8_t {
    kDecided,  // it succeeded, or failed for good
    kNothing,  // it had no effect, and may be run again
    kUnknown,  // the connection was lost during COMMIT
  };
  struct Try {
    Fate fate = Fate::kDecided;
    Status status;
    Connection::Mark mark;  // when kUnknown
  };

  // A connection of the pool; its destructor returns it, or closes it if it is unusable.
  class Borrowed;

  explicit PostgresDatabase(std::string conninfo);

  Status Migrate(Connection& connection);
  // Waits for a free connection, or opens one while there are fewer than the bound.
  Result<Borrowed> Borrow(Time until);
  static Try TryOnce(Connection& connection, const Begin& begin, const Transaction& transaction);
  // Runs it until its fate is decided or the time is over.
  Status RunPatiently(const Begin& begin, const Transaction& transaction);
  // kDecided when the transaction was committed, kNothing when it was not.
  Result<Fate> FateOf(const Connection::Mark& mark, Time until);

  const std::string conninfo_;
  std::string description_;

  std::mutex mutex_;  // of all below
  std::condition_variable returned_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::vector<int64_t> free_shards_;  // one for each connection that may be made
};

}  // namespace caisson::store::postgres
