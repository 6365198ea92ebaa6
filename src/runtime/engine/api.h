// The HTTP API of a container engine (Docker, or Podman's service of the same shape) at a socket of this machine: the
// few calls that a run needs. Every call opens a connection of its own and every wait has a limit; any thread may call.
// Errors name the socket, the engine's own words and, where there is no engine, how to get one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::runtime::engine {

// In this order: DOCKER_HOST (unix:// only); the first that exists of the sockets that engines have by default, an
// ordinary user's own before the machine's.
Result<std::string> FindSocket();

struct EngineInfo {
  std::string version;
  bool rootless = false;
  // The engine's containers see a part of the host's ids only, as those of a user namespace.
  bool maps_ids = false;
};

struct ContainerState {
  pid_t pid = 0;  // in the engine's pid namespace
  bool running = false;
  bool oom_killed = false;
  std::string error;
};

struct ListedContainer {
  std::string id;
  std::string owner;  // the value of kOwnerLabel
  bool running = false;
  int64_t created_s = 0;
};
inline constexpr char kOwnerLabel[] = "org.caisson.owner";

// The streams of a container: what is written goes to its standard input; what is read, StreamDecoder takes apart.
struct AttachedStream {
  UniqueFd socket;
  std::string first;  // bytes that arrived together with the engine's answer
};

class Api {
 public:
  explicit Api(std::string socket) : socket_(std::move(socket)) {}
  const std::string& socket() const { return socket_; }

  Result<EngineInfo> ReadInfo() const;
  Result<bool> HasImage(const std::string& id) const;
  Status LoadImage(const std::string& archive) const;

  // `document`: the body of POST /containers/create. Returns the id.
  Result<std::string> Create(const std::string& name, const std::string& document) const;
  Result<AttachedStream> Attach(const std::string& id) const;
  Status Start(const std::string& id) const;
  Result<ContainerState> Inspect(const std::string& id) const;
  // Kills the container and returns when it has ended; one that has ended already is no error.
  Status Kill(const std::string& id) const;
  // `container`: an id or a name. Kills it first if need be; one that does not exist is no error.
  Status Remove(const std::string& container) const;
  // The bytes of the request that Remove sends, for a process that may only make system calls.
  static std::string RemoveRequest(const std::string& container);
  // Of the containers with kOwnerLabel.
  Result<std::vector<ListedContainer>> ListOwned() const;

 private:
  struct Reply {
    int status = 0;
    std::string body;
    bool is_good() const { return status >= 200 && status < 300; }
  };
  Result<UniqueFd> Connect() const;
  Result<Reply> Send(const std::string& method, const std::string& target, std::string_view body = {},
                     const char* type = "application/json") const;
  Result<Reply> Receive(const UniqueFd& connection, std::string first = "") const;
  Error Refused(const std::string& what, const Reply& reply) const;

  const std::string socket_;
};

}  // namespace caisson::runtime::engine
