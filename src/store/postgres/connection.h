// One connection to the server with the statements it has prepared. One thread at a time.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "store/sql/session.h"

namespace caisson::store::postgres {

// Why the last statement failed, as far as it decides what can be done.
enum class Trouble : uint8_t {
  kNone,
  kFinal,      // the same again would fail again
  kTransient,  // the transaction stood in another's way: it may be run again
  kLost,       // the connection is good for nothing more
};

class Connection final : public sql::Session {
 public:
  static Result<std::unique_ptr<Connection>> Open(const std::string& conninfo);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() = default;

  // Statements without parameters, several at once. Gives the first column of the last row of any, as text.
  Result<std::string> Execute(const char* statements);

  Status Begin(const char* statement);
  // Ends the transaction. If it changed anything, it is first marked with a number that no other one has.
  Status Commit();
  // What the last transaction was marked with; none when it changed nothing.
  struct Mark {
    std::string connection;
    int64_t number = 0;
  };
  const Mark& mark() const { return mark_; }
  // Whether the transaction with this mark was committed. Waits while it is under way.
  Result<bool> WasCommitted(const Mark& mark);

  // Asks the socket, not the server: false when the server has closed the connection.
  bool Alive();
  Trouble trouble() const { return trouble_; }
  int ServerVersion() const { return ::PQserverVersion(handle_.get()); }
  void SetShard(int64_t shard) { shard_ = shard; }

  Status EnterAlone() override;
  int64_t Shard() const override { return shard_; }

 private:
  struct Finish {
    void operator()(PGconn* handle) const { ::PQfinish(handle); }
  };
  struct Clear {
    void operator()(PGresult* result) const { ::PQclear(result); }
  };
  using ResultPtr = std::unique_ptr<PGresult, Clear>;

  explicit Connection(std::string id) { mark_.connection = std::move(id); }

  Result<int64_t> DoRun(const char* statement, bool keep, const sql::Values& values, const sql::EachRow& each) override;
  Result<const char*> Prepare(const char* statement);
  // The result when it is a success; else the error, and sets trouble_.
  Result<ResultPtr> Judge(ResultPtr result);

  std::unique_ptr<PGconn, Finish> handle_;
  std::unordered_map<const char*, std::string> names_;  // of prepared statements, by the address of their text
  Trouble trouble_ = Trouble::kNone;
  bool changed_ = false;  // something, in this transaction
  Mark mark_;
  int64_t shard_ = 0;
};

}  // namespace caisson::store::postgres
