// Watches the directories of sessions and feeds the standard input of their commands, in one thread.
//
// Supervisors are processes of their own. They replace session.json and commands/N.json when something changes and
// append to commands/N.out while a command writes, so the directories say everything that clients wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "service/changes.h"

namespace caisson::service {

class SessionMonitor {
 public:
  // Of one command: what it has not read yet. A caller that sends more waits.
  static constexpr size_t kMostPending = size_t{16} << 20;

  static Result<std::unique_ptr<SessionMonitor>> Start(std::shared_ptr<Changes> changes);
  ~SessionMonitor();
  SessionMonitor(const SessionMonitor&) = delete;
  SessionMonitor& operator=(const SessionMonitor&) = delete;

  // From now on subscribers to `id` are told about changes below `path`. A failure (too many watches) is logged; then
  // subscribers see changes only when they look by themselves, every half second.
  void Watch(const std::string& id, const std::string& path);
  void Forget(const std::string& id);

  // Whether the monitor holds the input of this command.
  bool HasInput(const std::string& id, int64_t command) const;
  // Takes the pipe that leads to the command's input.
  void AddInput(const std::string& id, int64_t command, UniqueFd pipe);
  // kNotFound when there is no such pipe, or the command closed it; kExhausted while too much is waiting. `end`: closes
  // the pipe after the last byte.
  Status Feed(const std::string& id, int64_t command, std::string bytes, bool end);

 private:
  using Key = std::pair<std::string, int64_t>;
  struct Input {
    UniqueFd pipe;
    std::string pending;
    size_t sent = 0;
    bool end = false;
    bool waits = false;  // in the epoll instance
  };
  struct WatchedDirectory {
    std::string id, path;
    bool commands = false;
  };

  SessionMonitor() = default;
  void Run();
  void OnChanges();
  void AddWatch(const std::string& id, const std::string& path, bool commands);
  // Writes what the pipe takes. False: it is done or broken.
  bool Push(Input& input, const Key& key);

  std::shared_ptr<Changes> changes_;
  UniqueFd epoll_, inotify_, wake_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // for all below
  std::map<int, WatchedDirectory> watched_;
  std::map<Key, Input> inputs_;
  std::map<uint64_t, Key> tags_;
  uint64_t last_tag_ = 2;
  std::thread thread_;
};

}  // namespace caisson::service
