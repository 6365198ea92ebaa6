#include "runtime/engine/api.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/version.h"
#include "client/reply_reader.h"

namespace caisson::runtime::engine {

namespace {

using nlohmann::json;

constexpr int64_t kAnswerMs = 60'000;  // a loaded machine's engine takes seconds to start a container
constexpr size_t kMaxReplyBytes = size_t{16} << 20;
constexpr size_t kMaxHeadBytes = size_t{32} << 10;
constexpr char kFix[] =
    "; fix: apt-get install docker.io and start it (systemctl start docker, or dockerd), or name the engine's socket: "
    "DOCKER_HOST=unix:///PATH";

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> DefaultSockets() {
  std::vector<std::string> sockets = {"/var/run/docker.sock", "/run/podman/podman.sock"};
  const std::string own = Variable("XDG_RUNTIME_DIR");
  if (::geteuid() != 0 && !own.empty())
    sockets.insert(sockets.begin(), {own + "/docker.sock", own + "/podman/podman.sock"});
  return sockets;
}

Status Await(int fd, short events, int64_t until_ms) {
  for (;;) {
    const int64_t left = until_ms - MonotonicNanos() / 1'000'000;
    if (left <= 0) return Error::System(ETIMEDOUT, "the engine does not answer");
    struct pollfd wait {
      fd, events, 0
    };
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Error::System(errno, "wait for the engine");
  }
}

int64_t Deadline() { return MonotonicNanos() / 1'000'000 + kAnswerMs; }

Status SendAll(int fd, std::string_view bytes) {
  const int64_t until = Deadline();
  while (!bytes.empty()) {
    const ssize_t size = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0)
      bytes.remove_prefix(static_cast<size_t>(size));
    else if (errno == EAGAIN)
      CAISSON_TRY_VOID(Await(fd, POLLOUT, until));
    else if (errno != EINTR)
      return Error::System(errno, "send to the engine");
  }
  return {};
}

// 0 at the end of the connection.
Result<size_t> ReceiveSome(int fd, char* into, size_t size, int64_t until_ms) {
  for (;;) {
    const ssize_t count = ::recv(fd, into, size, MSG_DONTWAIT);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN)
      CAISSON_TRY_VOID(Await(fd, POLLIN, until_ms));
    else if (errno != EINTR)
      return Error::System(errno, "receive from the engine");
  }
}

std::string HeadOf(const std::string& method, const std::string& target, size_t body_bytes, const char* type,
                   const char* connection) {
  return method + " " + target + " HTTP/1.1\r\nHost: engine\r\nUser-Agent: caisson/" + kVersion +
         "\r\nConnection: " + connection + "\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body_bytes) + "\r\n\r\n";
}

Result<json> ReadDocument(const std::string& text) {
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) return Error::System(EPROTO, "the engine's answer is not JSON");
  return document;
}

// The member at the path of keys, or null.
const json& At(const json& document, std::initializer_list<const char*> keys) {
  static const json nothing;
  const json* found = &document;
  for (const char* key : keys) {
    const auto member = found->is_object() ? found->find(key) : found->end();
    if (!found->is_object() || member == found->end()) return nothing;
    found = &*member;
  }
  return *found;
}

std::string TextOf(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }
bool IsTrue(const json& value) { return value.is_boolean() && value.get<bool>(); }
int64_t NumberOf(const json& value) { return value.is_number_integer() ? value.get<int64_t>() : 0; }

// Ids and names go into the targets of requests.
bool IsPlain(const std::string& text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == ':' || c == '.';
  });
}

}  // namespace

Result<std::string> FindSocket() {
  const std::string named = Variable("DOCKER_HOST");
  if (!named.empty()) {
    // Trees of this machine are shown inside, so the engine must be on it.
    if (named.rfind("unix:///", 0) != 0)
      return Error::Unsupported("runtime container: DOCKER_HOST is " + named +
                                ", which is not a socket of this machine; fix: DOCKER_HOST=unix:///PATH");
    return named.substr(7);
  }
  std::string tried;
  for (const std::string& socket : DefaultSockets()) {
    if (::access(socket.c_str(), F_OK) == 0) return socket;
    tried += (tried.empty() ? "" : ", ") + socket;
  }
  return Error::Unsupported("runtime container: no engine listens here (tried " + tried + ")" + kFix);
}

Result<UniqueFd> Api::Connect() const {
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (socket_.size() >= sizeof(address.sun_path))
    return Error::Invalid("runtime container: the path " + socket_ + " is too long for a socket");
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection) return Error::System(errno, "make a socket");
  if (::connect(connection.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) == 0)
    return connection;
  if (errno == EACCES || errno == EPERM)
    return Error::Unsupported("runtime container: this user may not use the engine at " + socket_ +
                              "; fix: run an engine of your own (rootless Docker or Podman) and name its socket in "
                              "DOCKER_HOST, or let an administrator add this user to the group docker");
  if (errno == ENOENT || errno == ECONNREFUSED)
    return Error::Unsupported("runtime container: no engine listens at " + socket_ + kFix);
  return Error::System(errno, "runtime container: connect to " + socket_);
}

Result<Api::Reply> Api::Receive(const UniqueFd& connection, std::string first) const {
  client::ReplyReader reader;
  Reply reply;
  const auto keep = [&](std::string_view piece) -> Status {
    reply.body.append(piece);
    if (reply.body.size() > kMaxReplyBytes) return Error::System(EMSGSIZE, "the engine's answer is too large");
    return {};
  };
  char chunk[size_t{16} << 10];
  const int64_t until = Deadline();
  for (;;) {
    if (!first.empty()) {
      CAISSON_TRY(const bool whole, reader.Take(first, keep));
      reply.status = reader.status();
      if (whole) return reply;
    }
    CAISSON_TRY(const size_t size, ReceiveSome(connection.get(), chunk, sizeof(chunk), until));
    if (size == 0) {
      CAISSON_TRY_VOID(reader.End());
      return reply;
    }
    first.assign(chunk, size);
  }
}

Result<Api::Reply> Api::Send(const std::string& method, const std::string& target, std::string_view body,
                             const char* type) const {
  const auto at_socket = [&](Error error) {
    return std::move(error).In("runtime container: " + method + " " + target.substr(0, target.find('?')) + " at " +
                               socket_);
  };
  CAISSON_TRY(const UniqueFd connection, Connect());
  // An engine may refuse a body before it has read all of it; its answer says why.
  Status sent = SendAll(connection.get(), HeadOf(method, target, body.size(), type, "close"));
  if (sent) sent = SendAll(connection.get(), body);
  Result<Reply> reply = Receive(connection);
  if (!reply) return at_socket(!sent ? std::move(sent).error() : std::move(reply).error());
  return reply;
}

Error Api::Refused(const std::string& what, const Reply& reply) const {
  std::string words = "HTTP status " + std::to_string(reply.status);
  if (const json document = json::parse(reply.body, nullptr, false); !document.is_discarded()) {
    if (const std::string message = TextOf(At(document, {"message"})); !message.empty()) words = message;
  }
  return Error::Unsupported("runtime container: the engine at " + socket_ + " could not " + what + ": " + words);
}

Result<EngineInfo> Api::ReadInfo() const {
  CAISSON_TRY(const Reply reply, Send("GET", "/info"));
  if (!reply.is_good()) return Refused("describe itself", reply);
  CAISSON_TRY(const json document, ReadDocument(reply.body));
  EngineInfo info;
  info.version = TextOf(At(document, {"ServerVersion"}));
  if (const json& options = At(document, {"SecurityOptions"}); options.is_array()) {
    for (const json& option : options) {
      const std::string text = TextOf(option);
      if (text.find("name=rootless") != std::string::npos) info.rootless = true;
      if (text.find("name=userns") != std::string::npos) info.maps_ids = true;
    }
  }
  info.maps_ids |= info.rootless;
  return info;
}

Result<bool> Api::HasImage(const std::string& id) const {
  CAISSON_TRY(const Reply reply, Send("GET", "/images/" + id + "/json"));
  if (reply.status == 404) return false;
  if (!reply.is_good()) return Refused("look for an image", reply);
  return true;
}

Status Api::LoadImage(const std::string& archive) const {
  CAISSON_TRY(const Reply reply, Send("POST", "/images/load?quiet=1", archive, "application/x-tar"));
  if (!reply.is_good()) return Refused("load the root file system of containers", reply);
  return {};
}

Result<std::string> Api::Create(const std::string& name, const std::string& document) const {
  CAISSON_TRY(const Reply reply, Send("POST", "/containers/create?name=" + name, document));
  if (!reply.is_good()) return Refused("create the container", reply);
  CAISSON_TRY(const json answer, ReadDocument(reply.body));
  const std::string id = TextOf(At(answer, {"Id"}));
  if (!IsPlain(id)) return Error::System(EPROTO, "runtime container: the engine gave the container no id");
  return id;
}

Result<AttachedStream> Api::Attach(const std::string& id) const {
  CAISSON_TRY(UniqueFd connection, Connect());
  std::string head =
      HeadOf("POST", "/containers/" + id + "/attach?stream=1&stdin=1&stdout=1&stderr=1", 0, "text/plain", "Upgrade");
  head.insert(head.size() - 2, "Upgrade: tcp\r\n");
  CAISSON_TRY_VOID(SendAll(connection.get(), head));
  std::string answer;
  const int64_t until = Deadline();
  size_t end;
  while ((end = answer.find("\r\n\r\n")) == std::string::npos) {
    char chunk[4096];
    CAISSON_TRY(const size_t size, ReceiveSome(connection.get(), chunk, sizeof(chunk), until));
    if (size == 0 || answer.size() > kMaxHeadBytes)
      return Error::System(EPROTO, "runtime container: the engine at " + socket_ + " attached no streams");
    answer.append(chunk, size);
  }
  // 200 by services that do not ask for the change of protocol.
  if (answer.rfind("HTTP/1.1 101", 0) == 0 || answer.rfind("HTTP/1.1 200", 0) == 0)
    return AttachedStream{std::move(connection), answer.substr(end + 4)};
  CAISSON_TRY(const Reply reply, Receive(connection, std::move(answer)));
  return Refused("attach to the container", reply);
}

Status Api::Start(const std::string& id) const {
  CAISSON_TRY(const Reply reply, Send("POST", "/containers/" + id + "/start"));
  if (!reply.is_good()) return Refused("start the container", reply);
  return {};
}

Result<ContainerState> Api::Inspect(const std::string& id) const {
  CAISSON_TRY(const Reply reply, Send("GET", "/containers/" + id + "/json"));
  if (!reply.is_good()) return Refused("inspect the container", reply);
  CAISSON_TRY(const json document, ReadDocument(reply.body));
  const json& state = At(document, {"State"});
  ContainerState found;
  const int64_t pid = NumberOf(At(state, {"Pid"}));
  found.pid = pid > 1 && pid <= INT32_MAX ? static_cast<pid_t>(pid) : 0;
  found.running = IsTrue(At(state, {"Running"}));
  found.oom_killed = IsTrue(At(state, {"OOMKilled"}));
  found.error = TextOf(At(state, {"Error"}));
  return found;
}

Status Api::Kill(const std::string& id) const {
  CAISSON_TRY(const Reply killed, Send("POST", "/containers/" + id + "/kill"));
  if (killed.status == 404) return {};
  if (!killed.is_good() && killed.status != 409) return Refused("kill the container", killed);
  CAISSON_TRY(const Reply ended, Send("POST", "/containers/" + id + "/wait"));
  if (!ended.is_good() && ended.status != 404) return Refused("wait for the container", ended);
  return {};
}

Status Api::Remove(const std::string& container) const {
  CAISSON_TRY(const Reply reply, Send("DELETE", "/containers/" + container + "?force=1&v=1"));
  // 409: being removed already.
  if (!reply.is_good() && reply.status != 404 && reply.status != 409) return Refused("remove the container", reply);
  return {};
}

std::string Api::RemoveRequest(const std::string& container) {
  return HeadOf("DELETE", "/containers/" + container + "?force=1&v=1", 0, "text/plain", "close");
}

Result<std::vector<ListedContainer>> Api::ListOwned() const {
  // {"label":["org.caisson.owner"]}
  CAISSON_TRY(const Reply reply, Send("GET", std::string("/containers/json?all=1&filters=%7B%22label%22%3A%5B%22") +
                                                 kOwnerLabel + "%22%5D%7D"));
  if (!reply.is_good()) return Refused("list its containers", reply);
  CAISSON_TRY(const json document, ReadDocument(reply.body));
  std::vector<ListedContainer> list;
  if (!document.is_array()) return list;
  for (const json& entry : document) {
    ListedContainer container;
    container.id = TextOf(At(entry, {"Id"}));
    container.owner = TextOf(At(entry, {"Labels", kOwnerLabel}));
    container.running = TextOf(At(entry, {"State"})) == "running";
    container.created_s = NumberOf(At(entry, {"Created"}));
    if (IsPlain(container.id)) list.push_back(std::move(container));
  }
  return list;
}

}  // namespace caisson::runtime::engine
