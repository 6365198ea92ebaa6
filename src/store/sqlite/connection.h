// One SQLite connection with the statements it has prepared. One thread at a time.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "store/sql/session.h"

namespace caisson::store::sqlite {

enum class Access : uint8_t { kReadWrite, kReadOnly };

class Connection final : public sql::Session {
 public:
  // The file must exist. A read-only connection sees committed data and never waits.
  static Result<std::unique_ptr<Connection>> Open(const std::string& path, Access access);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() = default;

  // Statements without parameters and rows, several at once: BEGIN, PRAGMA and the schema.
  Status Execute(const char* statements);
  // Whether a transaction is open: some failures (a full disk) close it on their own.
  bool InTransaction() const { return ::sqlite3_get_autocommit(handle_.get()) == 0; }
  int SystemErrno() const { return ::sqlite3_system_errno(handle_.get()); }

  Status EnterAlone() override { return {}; }   // there is one writer
  int64_t Shard() const override { return 0; }  // so no connection waits for a counter

 private:
  struct CloseHandle {
    void operator()(sqlite3* handle) const { ::sqlite3_close_v2(handle); }
  };
  struct FinalizeStatement {
    void operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }
  };
  using StatementPtr = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

  explicit Connection(std::string path) : path_(std::move(path)) {}

  Result<int64_t> DoRun(const char* statement, bool keep, const sql::Values& values, const sql::EachRow& each) override;
  Status DoPost(const char* statement, const sql::Values& values) override;
  Result<StatementPtr> Prepare(const char* text, bool keep);
  Result<int64_t> Step(sqlite3_stmt* statement, const sql::EachRow& each);
  // The cause of the last failure, with advice.
  Error LastError() const;

  std::string path_;
  std::unique_ptr<sqlite3, CloseHandle> handle_;
  std::unordered_map<const char*, StatementPtr> statements_;  // by the address of their text
};

}  // namespace caisson::store::sqlite
