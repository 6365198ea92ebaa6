// A client of a session's supervisor: the command line, or a service. Calls wait for their reply; events that come
// meanwhile are kept.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "session/channel.h"
#include "session/command.h"
#include "session/directory.h"

namespace caisson::session {

struct RemoteFile {
  std::string name;
  mode_t mode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;
  std::string link_target;
  mode_t target_mode = 0;  // of what a link leads to; 0: nothing
};

// A command that this client started or attached to, with its ends of the streams; an invalid one is not there.
struct RemoteCommand {
  uint32_t number = 0;
  bool terminal = false;
  int64_t missing = 0;  // bytes at the beginning of the output that are not kept any more
  UniqueFd input, output, error;
};

class Client {
 public:
  // kConflict when the session is not alive.
  static Result<Client> Connect(const SessionDirectory& directory);

  // A call that is not answered for this long fails; without it, calls wait.
  void set_patience_ms(int64_t patience_ms) { patience_ms_ = patience_ms; }

  // For waiting; Receive takes what is there.
  int fd() const { return channel_.fd(); }
  // Messages that are not replies. False: the supervisor is gone.
  Result<bool> Receive();
  std::optional<nlohmann::json> TakeEvent();

  Result<nlohmann::json> Call(const std::string& request, nlohmann::json members = nlohmann::json::object(),
                              std::vector<UniqueFd>* fds = nullptr);
  // Without waiting for the reply, which is dropped.
  Status Tell(const std::string& request, nlohmann::json members);

  Result<RemoteCommand> Exec(const CommandRequest& request);
  Result<RemoteCommand> Attach(std::optional<uint32_t> command, bool write);
  // Stops every process inside until the client is closed or Release is called.
  Status Hold();
  Status Release();
  Status Note(const char* type, nlohmann::json members);
  Status Stop(const std::string& reason);
  // Answers a question; `scope` is "once" or "session".
  Result<nlohmann::json> Approve(const std::string& approval, const std::string& scope);
  Result<nlohmann::json> Deny(const std::string& approval, const std::string& reason);

  Result<UniqueFd> OpenFile(const std::string& path, bool write, mode_t mode = 0644);
  Result<RemoteFile> Stat(const std::string& path);
  Result<std::vector<RemoteFile>> List(const std::string& path);
  Status MakeDirectories(const std::string& path, mode_t mode);
  Status MakeLink(const std::string& path, const std::string& target);
  Status Remove(const std::string& path);

 private:
  explicit Client(Channel channel) : channel_(std::move(channel)) {}
  Status WaitFor(short events) const;

  Channel channel_;
  std::deque<nlohmann::json> events_;
  std::deque<Message> replies_;
  int dropped_ = 0;           // replies to Tell, still to come
  int64_t patience_ms_ = -1;  // none
};

}  // namespace caisson::session
