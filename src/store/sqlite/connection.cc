#include "store/sqlite/connection.h"

#include <cerrno>
#include <utility>

namespace caisson::store::sqlite {
namespace {

class StatementRow final : public sql::Row {
 public:
  explicit StatementRow(sqlite3_stmt* statement) : statement_(statement) {}
  int64_t Int(int column) const override { return ::sqlite3_column_int64(statement_, column); }
  std::string Text(int column) const override {
    const unsigned char* text = ::sqlite3_column_text(statement_, column);
    if (text == nullptr) return {};
    return {reinterpret_cast<const char*>(text), static_cast<size_t>(::sqlite3_column_bytes(statement_, column))};
  }

 private:
  sqlite3_stmt* statement_;
};

// Unbinds and resets a statement on every path: a statement that is not reset keeps its transaction open.
class Rewind {
 public:
  explicit Rewind(sqlite3_stmt* statement) : statement_(statement) {}
  Rewind(const Rewind&) = delete;
  Rewind& operator=(const Rewind&) = delete;
  ~Rewind() {
    ::sqlite3_reset(statement_);
    ::sqlite3_clear_bindings(statement_);
  }

 private:
  sqlite3_stmt* statement_;
};

// SQLite has one writer, so rows need no locks, and its SQL has no syntax for them.
std::string WithoutRowLocks(std::string text) {
  for (const std::string clause : {" FOR UPDATE OF callbacks SKIP LOCKED", " FOR UPDATE SKIP LOCKED", " FOR UPDATE"}) {
    for (size_t at = text.find(clause); at != std::string::npos; at = text.find(clause)) text.erase(at, clause.size());
  }
  return text;
}

// The text stays where it is until the statement has run, so SQLite need not copy it.
int Bind(sqlite3_stmt* statement, int index, const sql::Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return ::sqlite3_bind_int64(statement, index, *number);
  const std::string_view text = std::get<std::string_view>(value);
  // A null pointer would bind NULL.
  return ::sqlite3_bind_text64(statement, index, text.data() == nullptr ? "" : text.data(), text.size(), SQLITE_STATIC,
                               SQLITE_UTF8);
}

// Advice to the operator, by SQLite's primary error code.
const char* FixFor(int code) {
  switch (code) {
    case SQLITE_FULL:
      return "the disk is full: free some space on its file system; nothing was changed";
    case SQLITE_CORRUPT:
      return "the file is damaged: stop caissond and restore it from a backup, or rescue what can be read with "
             "sqlite3's .recover";
    case SQLITE_NOTADB:
      return "this is no SQLite database: name another file, or restore it from a backup";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another program keeps the database locked: end it (fuser names it)";
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return "the file, its -wal and -shm, and their directory must be writable for the user caissond runs as";
    case SQLITE_IOERR:
      return "reading or writing failed: look at the kernel's log for errors of the disk";
    default:
      return nullptr;
  }
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::Open(const std::string& path, Access access) {
  std::unique_ptr<Connection> connection(new Connection(path));
  sqlite3* handle = nullptr;
  // NOMUTEX: each connection has its own lock or thread outside.
  const int code = ::sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  connection->handle_.reset(handle);
  if (handle == nullptr) return Error::System(ENOMEM, "open " + path);
  if (code != SQLITE_OK) return connection->LastError();
  ::sqlite3_extended_result_codes(handle, 1);

  // busy_timeout: only a person with the sqlite3 shell can block us; we wait a moment and then report the open
  // transaction. foreign_keys: what belongs to a job is removed with it by the tables' own rules. cell_size_check: a
  // damaged page is detected when it is read. trusted_schema: functions named by a foreign schema are not run.
  // temp_store: the few sorts need no files.
  // cache_size: 16 MiB, enough for the indexes of a long queue.
  CAISSON_TRY_VOID(
      connection->Execute("PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON; "
                          "PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384"));
  if (access == Access::kReadOnly) CAISSON_TRY_VOID(connection->Execute("PRAGMA query_only = ON"));
  return connection;
}

Status Connection::Execute(const char* statements) {
  if (::sqlite3_exec(handle_.get(), statements, nullptr, nullptr, nullptr) != SQLITE_OK) return LastError();
  return {};
}

Result<Connection::StatementPtr> Connection::Prepare(const char* text, bool keep) {
  sqlite3_stmt* statement = nullptr;
  const std::string own_text = WithoutRowLocks(text);
  if (::sqlite3_prepare_v3(handle_.get(), own_text.c_str(), static_cast<int>(own_text.size()) + 1,
                           keep ? SQLITE_PREPARE_PERSISTENT : 0, &statement, nullptr) != SQLITE_OK) {
    return LastError();
  }
  return StatementPtr(statement);
}

Result<int64_t> Connection::DoRun(const char* statement, bool keep, const sql::Values& values,
                                  const sql::EachRow& each) {
  StatementPtr once;
  sqlite3_stmt* prepared = nullptr;
  const auto known = keep ? statements_.find(statement) : statements_.end();
  if (known != statements_.end()) {
    prepared = known->second.get();
  } else {
    CAISSON_TRY(once, Prepare(statement, keep));
    prepared = once.get();
    if (keep) statements_.emplace(statement, std::move(once));
  }
  const Rewind rewind(prepared);
  for (size_t i = 0; i < values.size(); ++i) {
    // "$7" is a name to SQLite, numbered by where it first stands.
    const std::string name = "$" + std::to_string(i + 1);
    const int index = ::sqlite3_bind_parameter_index(prepared, name.c_str());
    if (Bind(prepared, index, values[i]) != SQLITE_OK) return LastError();
  }
  return Step(prepared, each);
}

Status Connection::DoPost(const char* statement, const sql::Values& values) {
  CAISSON_TRY_VOID(DoRun(statement, true, values, nullptr));
  return {};
}

Result<int64_t> Connection::Step(sqlite3_stmt* statement, const sql::EachRow& each) {
  const StatementRow row(statement);
  int64_t rows = 0;
  int code = ::sqlite3_step(statement);
  for (; code == SQLITE_ROW; code = ::sqlite3_step(statement)) {
    ++rows;
    if (each) each(row);
  }
  if (code != SQLITE_DONE) return LastError();
  return ::sqlite3_column_count(statement) > 0 ? rows : ::sqlite3_changes64(handle_.get());
}

Error Connection::LastError() const {
  const int code = ::sqlite3_extended_errcode(handle_.get());
  std::string message = "database " + path_ + ": " + ::sqlite3_errmsg(handle_.get());
  const char* fix = FixFor(code & 0xff);
  if (fix != nullptr) message += std::string("; ") + fix;
  const int system_errno = ::sqlite3_system_errno(handle_.get());
  return {ErrorKind::kSystem, (code & 0xff) == SQLITE_FULL ? ENOSPC : system_errno, std::move(message)};
}

}  // namespace caisson::store::sqlite
