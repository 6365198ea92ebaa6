// One connection to the server with the statements it has prepared. One thread at a time.
//
// Statements are sent in libpq's pipeline mode: posted statements are sent together with the first one whose answer is
// needed, or with COMMIT, so that a transaction waits for the server two or three times instead of a dozen. After a
// failed statement the server skips the others of the pipeline.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/sql/session.h"

namespace caisson::store::postgres {

// Why the last statement failed, as far as it decides about a retry.
enum class Trouble : uint8_t {
  kNone,
  kFinal,      // a retry would fail again
  kTransient,  // conflict with another transaction: may be run again
  kLost,       // the connection is unusable
};

class Connection final : public sql::Session {
 public:
  static Result<std::unique_ptr<Connection>> Open(const std::string& conninfo);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() = default;

  // Statements without parameters, several at once, outside of the pipeline. Gives the first column of the last row.
  Result<std::string> Execute(const char* statements);

  // A transaction to read, or one to write, which gets a mark.
  Status BeginReading();
  Status BeginWriting(sql::Durability durability);
  Status Commit();
  void Rollback();

  // The first write of a transaction, into a row that only this connection writes. The row is locked before COMMIT is
  // sent: a connection that can lock it afterwards knows that the transaction is over, and the number shows whether it
  // was committed.
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
  Status DoPost(const char* statement, const sql::Values& values) override;
  // Adds it to the pipeline, after its preparation if it is new.
  Status Send(const char* statement, bool keep, const sql::Values& values);
  // Sends what is in the pipeline and reads all answers. Gives the last one, or the first error.
  Result<ResultPtr> Receive();
  // The result when it is a success; else the error, and sets trouble_.
  Result<ResultPtr> Judge(ResultPtr result);
  Error Lost();

  std::unique_ptr<PGconn, Finish> handle_;
  int64_t prepared_ = 0;
  std::unordered_map<const char*, std::string> names_;  // of prepared statements, by the address of their text
  std::vector<const char*>
      sent_;  // and not answered yet: statements that are being prepared, nullptr for those that run
  Trouble trouble_ = Trouble::kNone;
  bool answered_ = false;  // the beginning of this transaction
  Mark mark_;
  int64_t shard_ = 0;
};

}  // namespace caisson::store::postgres
