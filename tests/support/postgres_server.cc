#include "support/postgres_server.h"

#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace caisson::testing {
namespace {

// The newest of /usr/lib/postgresql/*/bin that has a server; empty when there is none.
std::string FindBinaries() {
  std::string found;
  std::error_code missing;
  for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", missing)) {
    const std::string binaries = version.path().string() + "/bin";
    if (std::filesystem::exists(binaries + "/initdb") && binaries > found) found = binaries;
  }
  return found;
}

}  // namespace

PostgresServer* PostgresServer::Get(std::string* reason) {
  static std::string why;
  static const std::unique_ptr<PostgresServer> server = []() -> std::unique_ptr<PostgresServer> {
    const std::string binaries = FindBinaries();
    if (binaries.empty()) {
      why = "there is no PostgreSQL server: install the package postgresql";
      return nullptr;
    }
    char directory[] = "/tmp/caisson-postgres-XXXXXX";
    if (::mkdtemp(directory) == nullptr) {
      why = "mkdtemp failed";
      return nullptr;
    }
    std::unique_ptr<PostgresServer> made(new PostgresServer(binaries, directory));
    const passwd* nobody = ::getpwnam("nobody");
    if (::geteuid() == 0 && (nobody == nullptr || ::chown(directory, nobody->pw_uid, nobody->pw_gid) != 0)) {
      why = "the server's directory could not be given to nobody";
      return nullptr;
    }
    if (!made->Run("initdb", "-D data -N -A trust -U caisson -E UTF8 --locale=C.UTF-8")) {
      why = "initdb failed";
      return nullptr;
    }
    if (!made->Guard()) {
      why = "no process to guard the server";
      return nullptr;
    }
    made->Start();
    return made;
  }();
  *reason = why;
  return server.get();
}

PostgresServer::~PostgresServer() {
  if (::getpid() == owner_ && guard_ != nullptr) ::pclose(guard_);  // ends the pipe, and waits for the guard
}

bool PostgresServer::Guard() {
  // "read" returns when the last process that holds the other end is gone.
  guard_ = ::popen(("trap '' INT TERM HUP; read -r line; cd '" + directory_ + "' && " + As() + binaries_ +
                    "/pg_ctl -D data -m immediate -w stop >>output 2>&1; cd / && rm -rf '" + directory_ + "'")
                       .c_str(),
                   "we");  // NOLINT: everything in it is ours
  return guard_ != nullptr;
}

std::string PostgresServer::As() {
  // setpriv keeps no group and no capability of root's.
  return ::geteuid() == 0 ? "setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=-all " : "";
}

std::string PostgresServer::NewDatabase() {
  const std::string name = "test" + std::to_string(++databases_);
  PGconn* connection = ::PQconnectdb(Conninfo().c_str());
  PGresult* result = ::PQexec(connection, ("CREATE SCHEMA " + name).c_str());
  EXPECT_EQ(::PQresultStatus(result), PGRES_COMMAND_OK) << ::PQerrorMessage(connection);
  ::PQclear(result);
  ::PQfinish(connection);
  return Conninfo() + " options=-csearch_path=" + name;
}

void PostgresServer::Start() {
  EXPECT_TRUE(Run("pg_ctl", "-D data -w -t 120 -l log -o \"-c listen_addresses='' -c unix_socket_directories='" +
                                directory_ + "' -c max_connections=60 -c recovery_init_sync_method=syncfs\" start"));
}

void PostgresServer::Crash() { EXPECT_TRUE(Run("pg_ctl", "-D data -m immediate -w stop")); }

bool PostgresServer::Run(const std::string& program, const std::string& arguments) const {
  const std::string command =
      "cd '" + directory_ + "' && " + As() + binaries_ + "/" + program + " " + arguments + " </dev/null >>output 2>&1";
  return std::system(command.c_str()) == 0;  // NOLINT: everything in it is ours
}

std::string PostgresServer::Conninfo() const { return "host=" + directory_ + " user=caisson dbname=postgres"; }

}  // namespace caisson::testing
