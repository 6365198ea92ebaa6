// The common interface of the two databases, as far as the store needs it: statements with numbered parameters, rows of
// numbers and text, and transactions.
//
//   src/store/sql      the transactions themselves, once, in SQL that both understand
//   src/store/sqlite   a Database of one file
//   src/store/postgres a Database of connections to a server
//
// The SQL is PostgreSQL's. SQLite takes it as it is, but for row locks (FOR UPDATE …), which its driver leaves out: it
// has one writer at a time. Values reach a statement as parameters only, never as a part of its text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace caisson::store::sql {

// There is no SQL NULL: 0 and the empty text stand for "none". Text is UTF-8 without NUL bytes; other text is kInvalid,
// because PostgreSQL cannot store it.
using Value = std::variant<int64_t, std::string_view>;
using Values = std::vector<Value>;

// A row while it is read. Columns count from 0.
class Row {
 public:
  virtual int64_t Int(int column) const = 0;
  virtual std::string Text(int column) const = 0;

 protected:
  ~Row() = default;
};
using EachRow = std::function<void(const Row&)>;

// A connection inside a transaction. One thread at a time.
class Session {
 public:
  // `statement` is a literal of the program: it is prepared once per connection and found again by its address. Returns
  // the number of rows that were changed or read.
  Result<int64_t> Run(const char* statement, const Values& values, const EachRow& each = nullptr);
  // Runs a statement whose result is not needed. A failure may be reported later, at the latest at the end of the
  // transaction. With PostgreSQL, several of them cost one round trip.
  Status Post(const char* statement, const Values& values);
  // For a statement whose text was built at run time; it is prepared for this call only.
  Result<int64_t> RunOnce(const std::string& statement, const Values& values, const EachRow& each = nullptr);

  // After it returns, no other transaction that called it is active, on any connection of any process.
  virtual Status EnterAlone() = 0;
  // The row of a sharded counter that this connection writes, so that connections do not wait for each other.
  virtual int64_t Shard() const = 0;

 protected:
  ~Session() = default;

  virtual Result<int64_t> DoRun(const char* statement, bool keep, const Values& values, const EachRow& each) = 0;
  virtual Status DoPost(const char* statement, const Values& values) = 0;
};

enum class Durability : uint8_t {
  kPrompt,   // committed; a power cut may undo it
  kDurable,  // on the disk
};

class Database {
 public:
  virtual ~Database() = default;

  using Transaction = std::function<Status(Session&)>;

  // Runs the function in one transaction, in any thread, and commits if it succeeds; an error undoes everything. The
  // function may run several times before one run is committed, so it must reset its outputs each time.
  virtual Status Write(Durability durability, const Transaction& transaction) = 0;
  // The same without the right to change anything, on one state of the database.
  virtual Status Read(const Transaction& transaction) = 0;

  // Whether the database answers now; does not wait or retry.
  virtual Status Ping() = 0;
  virtual std::string Description() const = 0;
};

}  // namespace caisson::store::sql
