// A real PostgreSQL server for the tests of one process: made in a temporary directory with Debian's binaries, reached
// through a socket in that directory only. It writes to disk as in production (fsync on).
//
// The server ends with the tests, however they end: a guard process waits for the end of a pipe that only the tests
// hold, then stops the server and removes its directory.
//
// initdb refuses root, so as root the server belongs to "nobody".
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace caisson::testing {

class PostgresServer {
 public:
  // The one server of this process, started at the first call; nullptr, with the reason, if it could not be started.
  static PostgresServer* Get(std::string* reason);
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;
  ~PostgresServer();

  // Where its socket is.
  const std::string& directory() const { return directory_; }
  // Creates a schema, which serves the store like a database but is created much faster; returns its conninfo.
  std::string NewDatabase();
  // Simulates a power failure (SIGQUIT: no clean shutdown, recovery from the log) and a restart.
  void Crash();
  void Start();

 private:
  PostgresServer(std::string binaries, std::string directory)
      : binaries_(std::move(binaries)), directory_(std::move(directory)), owner_(::getpid()) {}

  // Starts the process that waits.
  bool Guard();

  static std::string As();  // the prefix that runs a command as the server's user
  // Runs a program as the server's user; its output goes to the server's log. Gives whether it exited with 0.
  bool Run(const std::string& program, const std::string& arguments) const;
  std::string Conninfo() const;

  const std::string binaries_;
  const std::string directory_;
  const pid_t owner_;  // the process of the tests: a child of theirs that ends has nothing to stop
  FILE* guard_ = nullptr;
  int databases_ = 0;
};

}  // namespace caisson::testing
