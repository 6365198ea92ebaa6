#include "session/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>

#include "session/json_bytes.h"
#include "session/protocol.h"
#include "verify/json_fields.h"

namespace caisson::session {

using nlohmann::json;

namespace {

Result<RemoteFile> ReadFile(const json& value) {
  RemoteFile file;
  CAISSON_TRY(file.name, verify::ReadRequired(value, "", "name", BytesFromJson));
  CAISSON_TRY(const int64_t mode, verify::ReadRequired(value, "", "mode", verify::ReadInteger, 0, INT32_MAX));
  file.mode = static_cast<mode_t>(mode);
  CAISSON_TRY(file.size, verify::ReadRequired(value, "", "size", verify::ReadInteger, 0, INT64_MAX));
  CAISSON_TRY(file.modified_ns,
              verify::ReadRequired(value, "", "modified_ns", verify::ReadInteger, INT64_MIN, INT64_MAX));
  CAISSON_TRY(file.link_target, verify::ReadRequired(value, "", "link_target", BytesFromJson));
  CAISSON_TRY(const int64_t target, verify::ReadRequired(value, "", "target_mode", verify::ReadInteger, 0, INT32_MAX));
  file.target_mode = static_cast<mode_t>(target);
  return file;
}

Error IsGone() { return Error::System(ECONNRESET, "the session's supervisor is gone"); }

}  // namespace

Result<Client> Client::Connect(const SessionDirectory& directory) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return Error::System(errno, "make a socket");
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/control.sock", directory.fd());
  if (::connect(socket.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED)
      return Error::Conflict("the session " + directory.id() + " is not running");
    return Error::System(errno, "connect to the session " + directory.id());
  }
  return Client(Channel(std::move(socket)));
}

Status Client::WaitFor(short events) const {
  struct pollfd wait {
    channel_.fd(), events, 0
  };
  int ready = 0;
  while ((ready = ::poll(&wait, 1, static_cast<int>(patience_ms_))) < 0) {
    if (errno != EINTR) return Error::System(errno, "poll");
  }
  return ready > 0 ? Status() : Status(Error::System(ETIMEDOUT, "wait for the session's supervisor"));
}

Result<bool> Client::Receive() {
  CAISSON_TRY(const bool open, channel_.Receive());
  while (true) {
    CAISSON_TRY(std::optional<Message> message, channel_.Take());
    if (!message) return open;
    if (message->body.contains("event"))
      events_.push_back(std::move(message->body));
    else if (dropped_ > 0)
      --dropped_;
    else
      replies_.push_back(*std::move(message));
  }
}

std::optional<json> Client::TakeEvent() {
  if (events_.empty()) return std::nullopt;
  json event = std::move(events_.front());
  events_.pop_front();
  return event;
}

Status Client::Tell(const std::string& request, json members) {
  members["request"] = request;
  CAISSON_TRY_VOID(channel_.Send(members));
  ++dropped_;
  while (channel_.has_queued()) {
    CAISSON_TRY_VOID(WaitFor(POLLOUT));
    CAISSON_TRY_VOID(channel_.Flush());
  }
  return {};
}

Result<json> Client::Call(const std::string& request, json members, std::vector<UniqueFd>* fds) {
  CAISSON_TRY_VOID(Tell(request, std::move(members)));
  --dropped_;
  // Replies come in order: those to earlier Tells first.
  while (true) {
    if (replies_.empty()) {
      CAISSON_TRY_VOID(WaitFor(POLLIN));
      CAISSON_TRY(const bool open, Receive());
      if (replies_.empty() && !open) return IsGone();
      continue;
    }
    Message reply = std::move(replies_.front());
    replies_.pop_front();
    if (const json* error = verify::FindMember(reply.body, "error")) {
      Error refused = ErrorFrom(error->value("kind", ""), error->value("message", "the supervisor refused"));
      refused.errno_value = error->value("errno", 0);
      return refused;
    }
    if (fds != nullptr) *fds = std::move(reply.fds);
    return std::move(reply.body);
  }
}

namespace {

Result<RemoteCommand> TakeStreams(const json& reply, std::vector<UniqueFd> fds) {
  RemoteCommand command;
  command.number = reply.value("command", uint32_t{0});
  command.missing = reply.value("missing", int64_t{0});
  size_t next = 0;
  for (const json& name : reply.value("streams", json::array())) {
    if (next >= fds.size()) return Error::Invalid("the supervisor's reply lacks a stream");
    (name == "input" ? command.input : name == "output" ? command.output : command.error) = std::move(fds[next++]);
  }
  return command;
}

}  // namespace

Result<RemoteCommand> Client::Exec(const CommandRequest& request) {
  std::vector<UniqueFd> fds;
  CAISSON_TRY(const json reply, Call("exec", ToJson(request), &fds));
  CAISSON_TRY(RemoteCommand command, TakeStreams(reply, std::move(fds)));
  command.terminal = request.terminal;
  return command;
}

Result<RemoteCommand> Client::Attach(std::optional<uint32_t> command, bool write) {
  json members = {{"write", write}};
  if (command) members["command"] = *command;
  std::vector<UniqueFd> fds;
  CAISSON_TRY(const json reply, Call("attach", std::move(members), &fds));
  CAISSON_TRY(RemoteCommand attached, TakeStreams(reply, std::move(fds)));
  attached.terminal = reply.value("terminal", false);
  return attached;
}

Status Client::Hold() {
  CAISSON_TRY_VOID(Call("hold"));
  return {};
}

Status Client::Release() {
  CAISSON_TRY_VOID(Call("release"));
  return {};
}

Status Client::Note(const char* type, json members) {
  CAISSON_TRY_VOID(Call("note", {{"type", type}, {"members", std::move(members)}}));
  return {};
}

Status Client::Stop(const std::string& reason) {
  const Result<json> reply = Call("stop", {{"reason", reason}});
  // A supervisor that ends at the same time for another reason has stopped, too.
  if (!reply && reply.error().errno_value != ECONNRESET) return reply.error();
  return {};
}

Result<json> Client::Approve(const std::string& approval, const std::string& scope) {
  return Call("approve", {{"approval", approval}, {"scope", scope}});
}

Result<json> Client::Deny(const std::string& approval, const std::string& reason) {
  json members = {{"approval", approval}};
  if (!reason.empty()) members["reason"] = reason;
  return Call("deny", std::move(members));
}

Result<UniqueFd> Client::OpenFile(const std::string& path, bool write, mode_t mode) {
  std::vector<UniqueFd> fds;
  CAISSON_TRY_VOID(
      Call("open", {{"path", BytesToJson(std::string_view(path))}, {"write", write}, {"mode", mode & 0777}}, &fds));
  if (fds.empty()) return Error::Invalid("the supervisor's reply lacks a file");
  return std::move(fds[0]);
}

Result<RemoteFile> Client::Stat(const std::string& path) {
  CAISSON_TRY(const json reply, Call("stat", {{"path", BytesToJson(std::string_view(path))}}));
  CAISSON_TRY(const json* file, verify::RequireMember(reply, "", "file"));
  return ReadFile(*file);
}

Result<std::vector<RemoteFile>> Client::List(const std::string& path) {
  CAISSON_TRY(const json reply, Call("list", {{"path", BytesToJson(std::string_view(path))}}));
  CAISSON_TRY(const json* list, verify::RequireMember(reply, "", "files"));
  std::vector<RemoteFile> files;
  for (const json& item : *list) {
    CAISSON_TRY(RemoteFile file, ReadFile(item));
    files.push_back(std::move(file));
  }
  return files;
}

Status Client::MakeDirectories(const std::string& path, mode_t mode) {
  CAISSON_TRY_VOID(Call("mkdir", {{"path", BytesToJson(std::string_view(path))}, {"mode", mode & 0777}}));
  return {};
}

Status Client::MakeLink(const std::string& path, const std::string& target) {
  CAISSON_TRY_VOID(
      Call("link", {{"path", BytesToJson(std::string_view(path))}, {"target", BytesToJson(std::string_view(target))}}));
  return {};
}

Status Client::Remove(const std::string& path) {
  CAISSON_TRY_VOID(Call("remove", {{"path", BytesToJson(std::string_view(path))}}));
  return {};
}

}  // namespace caisson::session
