#include "store/postgres/connection.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace caisson::store::postgres {
namespace {

class ResultRow final : public sql::Row {
 public:
  ResultRow(const PGresult* result, int row) : result_(result), row_(row) {}
  int64_t Int(int column) const override { return std::strtoll(::PQgetvalue(result_, row_, column), nullptr, 10); }
  std::string Text(int column) const override {
    return {::PQgetvalue(result_, row_, column), static_cast<size_t>(::PQgetlength(result_, row_, column))};
  }

 private:
  const PGresult* result_;
  int row_;
};

// Parameters for libpq: NUL-terminated texts. The session has already refused texts that contain NUL.
class Parameters {
 public:
  explicit Parameters(const sql::Values& values) {
    texts_.reserve(values.size());
    for (const sql::Value& value : values) {
      const auto* number = std::get_if<int64_t>(&value);
      texts_.push_back(number != nullptr ? std::to_string(*number) : std::string(std::get<std::string_view>(value)));
    }
    for (const std::string& text : texts_) pointers_.push_back(text.c_str());
  }
  int count() const { return static_cast<int>(pointers_.size()); }
  const char* const* data() const { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<const char*> pointers_;
};

constexpr char kMark[] =
    "INSERT INTO caisson_connections (id, last_mark, used) VALUES ($1, $2, now()) "
    "ON CONFLICT (id) DO UPDATE SET last_mark = excluded.last_mark, used = excluded.used";
// An UPDATE, so that it waits for a transaction that is writing the mark.
constexpr char kFindMark[] =
    "INSERT INTO caisson_connections (id, last_mark, used) VALUES ($1, 0, now()) "
    "ON CONFLICT (id) DO UPDATE SET used = excluded.used RETURNING last_mark";

constexpr char kLock[] = "SELECT pg_advisory_xact_lock($1)";

int64_t Affected(const PGresult* result) {
  return std::strtoll(::PQcmdTuples(const_cast<PGresult*>(result)), nullptr, 10);  // libpq only forgot the const
}

Result<std::string> NewId() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return Error::System(errno, "getrandom");
  }
  std::string id;
  for (const unsigned char byte : bytes) {
    id += static_cast<char>('a' + (byte >> 4));
    id += static_cast<char>('a' + (byte & 15));
  }
  return id;
}

// Without the line break that libpq ends its messages with.
std::string Trimmed(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// By SQLSTATE, https://www.postgresql.org/docs/15/errcodes-appendix.html
Trouble TroubleOf(const std::string& code) {
  if (code == "40001" || code == "40P01" || code == "55P03") return Trouble::kTransient;  // conflict, deadlock, lock
  if (code.compare(0, 2, "08") == 0) return Trouble::kLost;
  // Ended by an operator, by a crash, while starting or for being idle.
  if (code == "57P01" || code == "57P02" || code == "57P03" || code == "57P05" || code == "25P03")
    return Trouble::kLost;
  return Trouble::kFinal;
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::Open(const std::string& conninfo) {
  // Keys before "dbname" are defaults that `conninfo` may override. They detect a vanished server after ten seconds
  // instead of fifteen minutes.
  const char* keywords[] = {"connect_timeout", "tcp_user_timeout", "keepalives_idle",
                            "dbname",          "client_encoding",  nullptr};
  const char* values[] = {"5", "10000", "10", conninfo.c_str(), "UTF8", nullptr};
  CAISSON_TRY(std::string id, NewId());
  std::unique_ptr<Connection> connection(new Connection(std::move(id)));
  connection->handle_.reset(::PQconnectdbParams(keywords, values, 1));
  PGconn* handle = connection->handle_.get();
  if (::PQstatus(handle) != CONNECTION_OK) {
    return Error{ErrorKind::kSystem, ECONNREFUSED,
                 "the PostgreSQL server cannot be reached: " + Trimmed(::PQerrorMessage(handle)) +
                     "; is it running, and is the database URL right?"};
  }
  // By default, libpq prints the server's notices.
  ::PQsetNoticeProcessor(
      handle, [](void*, const char*) {}, nullptr);
  if (::PQserverVersion(handle) < 130000) {
    return Error::Unsupported("the PostgreSQL server is older than version 13, which is needed");
  }
  const char* encoding = ::PQparameterStatus(handle, "server_encoding");
  if (encoding == nullptr || std::strcmp(encoding, "UTF8") != 0) {
    return Error::Unsupported("the PostgreSQL database does not keep UTF-8: make it with ENCODING 'UTF8'");
  }
  // enable_…, plan_cache_mode: every statement has its index and is slow without it. A planner that knows a table
  // as
  //   empty, as it was when the statement was prepared, or as full, as it was when last analysed, would choose worse.
  // jit: compiling takes longer than any of our statements.
  // …_timeout: a process that hangs blocks a job or the queue no longer than this. A call that blocked another for that
  // long is run again or fails.
  CAISSON_TRY_VOID(
      connection->Execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; "
                          "SET plan_cache_mode = force_generic_plan; SET jit = off; SET statement_timeout = '30s'; SET "
                          "lock_timeout = '10s'; "
                          "SET idle_in_transaction_session_timeout = '30s'"));
  return connection;
}

Result<std::string> Connection::Execute(const char* statements) {
  CAISSON_TRY(const ResultPtr result, Judge(ResultPtr(::PQexec(handle_.get(), statements))));
  if (::PQntuples(result.get()) == 0) return std::string();
  return ResultRow(result.get(), ::PQntuples(result.get()) - 1).Text(0);
}

Status Connection::BeginReading() {
  if (::PQenterPipelineMode(handle_.get()) == 0) return Lost();
  return Send("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", true, {});
}

Status Connection::BeginWriting(sql::Durability durability) {
  answered_ = false;
  if (::PQenterPipelineMode(handle_.get()) == 0) return Lost();
  CAISSON_TRY_VOID(Send("BEGIN", true, {}));
  if (durability == sql::Durability::kPrompt) {
    CAISSON_TRY_VOID(Send("SET LOCAL synchronous_commit = off", true, {}));
  }
  ++mark_.number;
  return Post(kMark, {mark_.connection, mark_.number});
}

Status Connection::Commit() {
  // The mark must be written before COMMIT is sent; most transactions had to wait for the server by now anyway.
  if (!answered_) CAISSON_TRY_VOID(Receive());
  CAISSON_TRY_VOID(Send("COMMIT", false, {}));
  CAISSON_TRY(const ResultPtr result, Receive());
  // COMMIT rolls back a transaction in which a statement failed, and reports success.
  if (std::strcmp(::PQcmdStatus(result.get()), "COMMIT") == 0) {
    ::PQexitPipelineMode(handle_.get());
    return {};
  }
  trouble_ = Trouble::kFinal;
  return Error{ErrorKind::kSystem, 0, "PostgreSQL: the transaction had failed and was undone"};
}

void Connection::Rollback() {
  const Trouble why = trouble_;
  // Reads the answers to posted statements, which do not matter any more.
  if (!sent_.empty()) (void)Receive();
  if (trouble_ != Trouble::kLost && Send("ROLLBACK", true, {})) (void)Receive();
  ::PQexitPipelineMode(handle_.get());
  if (trouble_ != Trouble::kLost) trouble_ = why;
}

Result<bool> Connection::WasCommitted(const Mark& mark) {
  int64_t number = 0;
  CAISSON_TRY_VOID(Run(kFindMark, {mark.connection}, [&](const sql::Row& row) { number = row.Int(0); }));
  return number == mark.number;
}

bool Connection::Alive() { return ::PQconsumeInput(handle_.get()) == 1 && ::PQstatus(handle_.get()) == CONNECTION_OK; }

Status Connection::EnterAlone() {
  constexpr int64_t kClaims = 0x43616973'00000002;
  return Post(kLock, {kClaims});
}

Status Connection::Send(const char* statement, bool keep, const sql::Values& values) {
  const Parameters parameters(values);
  int sent = 0;
  if (keep) {
    const auto [known, is_new] = names_.try_emplace(statement);
    if (is_new) {
      known->second = "s" + std::to_string(++prepared_);
      if (::PQsendPrepare(handle_.get(), known->second.c_str(), statement, 0, nullptr) == 0) return Lost();
      sent_.push_back(statement);
    }
    sent = ::PQsendQueryPrepared(handle_.get(), known->second.c_str(), parameters.count(), parameters.data(), nullptr,
                                 nullptr, 0);
  } else {
    sent = ::PQsendQueryParams(handle_.get(), statement, parameters.count(), nullptr, parameters.data(), nullptr,
                               nullptr, 0);
  }
  if (sent == 0) return Lost();
  sent_.push_back(nullptr);
  return {};
}

Result<Connection::ResultPtr> Connection::Receive() {
  const std::vector<const char*> sent = std::exchange(sent_, {});
  if (::PQpipelineSync(handle_.get()) == 0) return Lost();
  ResultPtr last;
  std::optional<Error> first_error;
  for (const char* preparing : sent) {
    ResultPtr result(::PQgetResult(handle_.get()));
    while (ResultPtr(::PQgetResult(handle_.get())) != nullptr) {
    }
    if (::PQstatus(handle_.get()) != CONNECTION_OK) return first_error ? *first_error : Lost();
    const bool skipped = ::PQresultStatus(result.get()) == PGRES_PIPELINE_ABORTED;
    Result<ResultPtr> judged = skipped ? Result<ResultPtr>(Error{}) : Judge(std::move(result));
    if (!judged) {
      if (preparing != nullptr) names_.erase(preparing);
      if (!skipped) first_error = std::move(judged).error();
      continue;
    }
    last = *std::move(judged);
  }
  const ResultPtr sync(::PQgetResult(handle_.get()));
  if (::PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC) return Lost();
  if (first_error) return *std::move(first_error);
  answered_ = true;
  return last;
}

Status Connection::DoPost(const char* statement, const sql::Values& values) { return Send(statement, true, values); }

Result<int64_t> Connection::DoRun(const char* statement, bool keep, const sql::Values& values,
                                  const sql::EachRow& each) {
  // Outside of a transaction it is a pipeline of its own.
  const bool alone = ::PQpipelineStatus(handle_.get()) == PQ_PIPELINE_OFF;
  if (alone && ::PQenterPipelineMode(handle_.get()) == 0) return Lost();
  CAISSON_TRY_VOID(Send(statement, keep, values));
  Result<ResultPtr> received = Receive();
  if (alone) ::PQexitPipelineMode(handle_.get());
  if (!received) return std::move(received).error();
  const PGresult* result = received->get();
  if (::PQresultStatus(result) == PGRES_COMMAND_OK) return Affected(result);
  const int rows = ::PQntuples(result);
  for (int row = 0; row < rows && each; ++row) each(ResultRow(result, row));
  return static_cast<int64_t>(rows);
}

Error Connection::Lost() {
  trouble_ = Trouble::kLost;
  return {ErrorKind::kSystem, ECONNRESET,
          "PostgreSQL: the connection was lost: " + Trimmed(::PQerrorMessage(handle_.get()))};
}

Result<Connection::ResultPtr> Connection::Judge(ResultPtr result) {
  const ExecStatusType status = ::PQresultStatus(result.get());
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
    trouble_ = Trouble::kNone;
    return result;
  }
  const char* field = ::PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
  if (field == nullptr) return Lost();
  const std::string code = field;
  std::string message = "PostgreSQL: " + Trimmed(::PQresultErrorMessage(result.get()));
  trouble_ = TroubleOf(code);
  if (code == "53100") {
    return Error{ErrorKind::kSystem, ENOSPC,
                 message + "; the server's disk is full: free some space; nothing was changed"};
  }
  if (code == "42501") message += "; the database user must own the tables";
  if (code == "57014") message += "; the server is overloaded, or another client holds a lock";
  return Error{ErrorKind::kSystem, 0, std::move(message)};
}

}  // namespace caisson::store::postgres
