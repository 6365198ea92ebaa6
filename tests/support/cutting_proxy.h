// Stands between PostgreSQL's clients and its server, on sockets, and cuts every few connections at the worst moment:
// COMMIT has reached the server, and its answer never reaches the client.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace caisson::testing {

class CuttingProxy {
 public:
  // Both are directories with a socket of PostgreSQL's name in them, as "host=" in a conninfo takes them.
  CuttingProxy(const std::string& server_directory, const std::string& own_directory);
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;
  // Its clients must have closed their connections.
  ~CuttingProxy();

  int cuts() const { return cuts_; }

 private:
  void Accept();
  void Forward(UniqueFd client);
  // Forwards bytes from one side; false at the end.
  bool Pass(int from, int to, bool from_client);

  const std::string server_path_;
  UniqueFd listener_;
  std::atomic<int> commits_{0};
  std::atomic<int> cuts_{0};
  std::mutex mutex_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace caisson::testing
