#include "store/postgres/connection.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
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

// Parameters as libpq takes them: zero-terminated texts. The session has refused those with a zero inside.
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
  // What stands before "dbname" is a default that `conninfo` may override. A server that vanished without a word is
  // noticed after ten seconds and not after fifteen minutes.
  const char* keywords[] = {"connect_timeout", "tcp_user_timeout", "keepalives_idle",
                            "dbname",          "client_encoding",  nullptr};
  const char* values[] = {"5", "10000", "10", conninfo.c_str(), "UTF8", nullptr};
  std::unique_ptr<Connection> connection(new Connection());
  connection->handle_.reset(::PQconnectdbParams(keywords, values, 1));
  PGconn* handle = connection->handle_.get();
  if (::PQstatus(handle) != CONNECTION_OK) {
    return Error{ErrorKind::kSystem, ECONNREFUSED,
                 "the PostgreSQL server cannot be reached: " + Trimmed(::PQerrorMessage(handle)) +
                     "; is it running, and is the database URL right?"};
  }
  if (::PQserverVersion(handle) < 130000) {
    return Error::Unsupported("the PostgreSQL server is older than version 13, which is needed");
  }
  const char* encoding = ::PQparameterStatus(handle, "server_encoding");
  if (encoding == nullptr || std::strcmp(encoding, "UTF8") != 0) {
    return Error::Unsupported("the PostgreSQL database does not keep UTF-8: make it with ENCODING 'UTF8'");
  }
  // enable_…, plan_cache_mode: every statement has its index, and none pays off without. A planner that knows a table
  // as
  //   empty, as it was when the statement was prepared, or as full, as it was when last analysed, would choose worse.
  // …_timeout: nobody holds a job or the queue for longer, should its process hang. A call that stood in the way of
  //   another for that long is run again, or fails.
  CAISSON_TRY_VOID(connection->Execute(
      "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; "
      "SET plan_cache_mode = force_generic_plan; SET statement_timeout = '30s'; SET lock_timeout = '10s'; "
      "SET idle_in_transaction_session_timeout = '30s'; SET client_min_messages = warning"));
  return connection;
}

Result<std::string> Connection::Execute(const char* statements) {
  CAISSON_TRY(const ResultPtr result, Judge(ResultPtr(::PQexec(handle_.get(), statements))));
  if (::PQntuples(result.get()) == 0) return std::string();
  return ResultRow(result.get(), ::PQntuples(result.get()) - 1).Text(0);
}

Status Connection::Commit() {
  CAISSON_TRY(const ResultPtr result, Judge(ResultPtr(::PQexec(handle_.get(), "COMMIT"))));
  // A transaction in which a statement failed is undone by COMMIT, which calls that a success.
  if (std::strcmp(::PQcmdStatus(result.get()), "COMMIT") == 0) return {};
  trouble_ = Trouble::kFinal;
  return Error{ErrorKind::kSystem, 0, "PostgreSQL: the transaction had failed and was undone"};
}

Status Connection::EnterAlone() {
  constexpr char kLock[] = "SELECT pg_advisory_xact_lock($1)";
  constexpr int64_t kClaims = 0x43616973'00000002;
  CAISSON_TRY_VOID(Run(kLock, {kClaims}));
  return {};
}

Result<const char*> Connection::Prepare(const char* statement) {
  const auto known = names_.find(statement);
  if (known != names_.end()) return known->second.c_str();
  const std::string name = "s" + std::to_string(names_.size());
  CAISSON_TRY_VOID(Judge(ResultPtr(::PQprepare(handle_.get(), name.c_str(), statement, 0, nullptr))));
  return names_.emplace(statement, name).first->second.c_str();
}

Result<int64_t> Connection::DoRun(const char* statement, bool keep, const sql::Values& values,
                                  const sql::EachRow& each) {
  const Parameters parameters(values);
  ResultPtr answer;
  if (keep) {
    CAISSON_TRY(const char* name, Prepare(statement));
    answer.reset(::PQexecPrepared(handle_.get(), name, parameters.count(), parameters.data(), nullptr, nullptr, 0));
  } else {
    answer.reset(
        ::PQexecParams(handle_.get(), statement, parameters.count(), nullptr, parameters.data(), nullptr, nullptr, 0));
  }
  CAISSON_TRY(const ResultPtr result, Judge(std::move(answer)));
  if (::PQresultStatus(result.get()) == PGRES_COMMAND_OK) {
    return static_cast<int64_t>(std::strtoll(::PQcmdTuples(result.get()), nullptr, 10));
  }
  const int rows = ::PQntuples(result.get());
  for (int row = 0; row < rows && each; ++row) each(ResultRow(result.get(), row));
  return static_cast<int64_t>(rows);
}

Result<Connection::ResultPtr> Connection::Judge(ResultPtr result) {
  const ExecStatusType status = ::PQresultStatus(result.get());
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
    trouble_ = Trouble::kNone;
    return result;
  }
  const char* field = ::PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
  const std::string code = field == nullptr ? "" : field;
  std::string message = "PostgreSQL: " + Trimmed(::PQerrorMessage(handle_.get()));
  const bool lost = ::PQstatus(handle_.get()) != CONNECTION_OK || result == nullptr;
  trouble_ = lost ? Trouble::kLost : TroubleOf(code);
  if (code == "53100") {
    return Error{ErrorKind::kSystem, ENOSPC,
                 message + "; the server's disk is full: free some space; nothing was changed"};
  }
  if (code == "42501") message += "; the database user must own the tables";
  if (code == "57014") message += "; the server is overloaded, or somebody holds a lock";
  return Error{ErrorKind::kSystem, 0, std::move(message)};
}

}  // namespace caisson::store::postgres
