// The supervisor's clients: connections, requests and replies.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "policy/limits.h"
#include "session/json_bytes.h"
#include "session/protocol.h"
#include "session/supervisor.h"
#include "verify/json_fields.h"
#include "verify/result.h"

namespace caisson::session {

using nlohmann::json;

namespace {

constexpr size_t kMostConnections = 256;
constexpr size_t kMostWaiting = 64;

json ToJson(const runtime::InsideFileInfo& info) {
  return {{"name", BytesToJson(std::string_view(info.name))},
          {"mode", info.mode},
          {"size", info.size},
          {"modified_ns", info.modified_ns},
          {"link_target", BytesToJson(std::string_view(info.link_target))},
          {"target_mode", info.target_mode}};
}

// What clients may record; everything else the supervisor sees itself.
bool IsClientsEvent(SessionEventType type) {
  switch (type) {
    case SessionEventType::kFileIn:
    case SessionEventType::kFileOut:
    case SessionEventType::kDiffComputed:
    case SessionEventType::kApplyBegun:
    case SessionEventType::kApplied:
    case SessionEventType::kApplyFailed:
    case SessionEventType::kDiscarded:
    case SessionEventType::kSessionForked:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Supervisor::OnConnection() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  struct ucred peer {};
  socklen_t size = sizeof(peer);
  // SECURITY: the directory's mode keeps other users out already; a descriptor that was passed on must not let them in.
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      (peer.uid != ::geteuid() && peer.uid != 0) || connections_.size() >= kMostConnections) {
    return;
  }
  const uint64_t client = ++last_connection_;
  Connection& connection = connections_.try_emplace(client, std::move(socket)).first->second;
  connection.uid = peer.uid;
  connection.pid = peer.pid;
  connection.tag =
      reactor_.Add(connection.channel.fd(), EPOLLIN, [this, client](uint32_t events) { OnMessages(client, events); });
}

void Supervisor::OnMessages(uint64_t client, uint32_t events) {
  Connection& connection = connections_.at(client);
  if ((events & EPOLLOUT) != 0) {
    if (!connection.channel.Flush()) return Disconnect(client);
    if (!connection.channel.has_queued()) reactor_.Change(connection.tag, EPOLLIN);
  }
  const Result<bool> open = connection.channel.Receive();
  if (!open) return Disconnect(client);
  while (true) {
    Result<std::optional<Message>> message = connection.channel.Take();
    if (!message) return Disconnect(client);
    if (!*message) break;
    if (connection.waiting.size() >= kMostWaiting) return Disconnect(client);
    connection.waiting.push_back(*std::move(*message));
  }
  if (!*open) {
    // Requests that came with the end, such as a detach, still count.
    Process(client);
    return finished_ ? void() : Disconnect(client);
  }
  Process(client);
}

void Supervisor::Process(uint64_t client) {
  while (!finished_) {
    const auto found = connections_.find(client);
    if (found == connections_.end() || found->second.waiting.empty()) return;
    // While one client holds the session, what would change it waits.
    const std::string name = found->second.waiting.front().body.value("request", "");
    const bool changes = name != "status" && name != "note" && name != "stop" && name != "detach" &&
                         name != "approvals" && name != "approve" && name != "deny";
    if (held_by_ != 0 && held_by_ != client && changes) return;
    Message message = std::move(found->second.waiting.front());
    found->second.waiting.pop_front();
    Answer(client, std::move(message));
  }
}

void Supervisor::Answer(uint64_t client, Message message) {
  const json* request = verify::FindMember(message.body, "request");
  const std::string name = request != nullptr && request->is_string() ? request->get<std::string>() : "";
  std::vector<UniqueFd> fds;
  Reply reply = Dispatch(client, name, message.body, fds);
  if (finished_ || connections_.count(client) == 0) return;
  if (!reply) {
    return Send(client, {{"reply", name},
                         {"error",
                          {{"kind", NameOf(reply.error().kind)},
                           {"errno", reply.error().errno_value},
                           {"message", reply.error().message}}}});
  }
  (*reply)["reply"] = name;
  Send(client, *reply, std::move(fds));
  // A command that could not be started has ended before its client knew of it.
  if (name == "exec" || name == "attach") {
    const auto command = commands_.find(reply->value("command", uint32_t{0}));
    if (command != commands_.end() && !command->second->running()) TellEnd(*command->second, client);
  }
}

Supervisor::Reply Supervisor::Dispatch(uint64_t client, const std::string& name, const json& message,
                                       std::vector<UniqueFd>& fds) {
  if (name != "status" && name != "approvals") {
    connections_.at(client).uses = true;  // looking at a session does not keep it alive
    last_used_ms_ = MonotonicNanos() / 1'000'000;
  }
  if (name == "exec") return Exec(client, message, fds);
  if (name == "attach") return Attach(client, message, fds);
  if (name == "status") return Status_();
  if (name == "detach" || name == "signal" || name == "resize" || name == "input_end" || name == "end") {
    CAISSON_TRY(SessionCommand* const command, FindCommand(message));
    if (name == "detach") {
      connections_.at(client).commands.erase(command->number);
      Leave(*command, client, true);
    } else if (!command->running()) {
      return Error::Conflict("command " + std::to_string(command->number) + " has ended");
    } else if (name == "signal") {
      CAISSON_TRY(const int64_t signal, verify::ReadRequired(message, "", "signal", verify::ReadInteger, 1, 64));
      CAISSON_TRY_VOID(run_->Signal(command->live.id, static_cast<int>(signal)));
    } else if (name == "input_end") {
      if (command->writer == client && command->input) command->input->TypeEnd();
    } else if (name == "end") {
      EndCommand(*command, Stop::kAsked);
    } else {
      CAISSON_TRY(const int64_t rows, verify::ReadRequired(message, "", "rows", verify::ReadInteger, 0, 10000));
      CAISSON_TRY(const int64_t columns, verify::ReadRequired(message, "", "columns", verify::ReadInteger, 0, 10000));
      // Only of the terminal whose keys it gets.
      if (command->writer == client && command->request.terminal) {
        CAISSON_TRY_VOID(
            run_->ResizeTerminal(command->live, static_cast<uint16_t>(rows), static_cast<uint16_t>(columns)));
        (void)transcript_->Resize(command->number, static_cast<int>(rows), static_cast<int>(columns), MonotonicNanos());
      }
    }
    return json::object();
  }
  if (name == "hold") {
    if (held_by_ == client) return json::object();
    CAISSON_TRY_VOID(run_->Pause());
    meter_->Abandon();
    held_by_ = client;
    return json::object();
  }
  if (name == "release") {
    if (held_by_ == client) Release();
    return json::object();
  }
  if (name == "note") {
    CAISSON_TRY(const std::string word, verify::ReadRequired(message, "", "type", verify::ReadString));
    const std::optional<SessionEventType> type = SessionEventTypeOf(word);
    if (!type || !IsClientsEvent(*type)) return Error::Invalid("type: not an event of a client");
    CAISSON_TRY(const json* members, verify::RequireMember(message, "", "members"));
    CAISSON_TRY_VOID(verify::ExpectMap(*members, "members", 64));
    if (*type == SessionEventType::kDiffComputed || *type == SessionEventType::kApplyBegun)
      record_.diff_digest = members->value("diff_digest", record_.diff_digest);
    CAISSON_TRY_VOID(Note(*type, *members));
    SaveRecord();
    return json::object();
  }
  if (name == "approvals") return ListApprovals();
  if (name == "approve") return Approve(client, message);
  if (name == "deny") return Deny(client, message);
  if (name == "forward") return Forward(client, message);
  if (name == "extend") {
    int64_t idle_ms = record_.idle_ms, ttl_ms = record_.ttl_ms;
    CAISSON_TRY_VOID(
        verify::ReadOptional(message, "", "idle_ms", idle_ms, verify::ReadInteger, 1, policy::kMaxTimeoutMs));
    CAISSON_TRY_VOID(
        verify::ReadOptional(message, "", "ttl_ms", ttl_ms, verify::ReadInteger, 1, policy::kMaxTimeoutMs));
    if (ttl_ms > most_ttl_ms_)
      return Error::Denied("ttl_ms: the profile allows a session at most " + FormatDuration(most_ttl_ms_));
    record_.idle_ms = idle_ms;
    record_.ttl_ms = ttl_ms;
    record_.expires_at = UtcTime(UnixMillis() + opened_ms_ + ttl_ms - MonotonicNanos() / 1'000'000);
    SaveRecord();
    return json{{"session", PublicJson(record_)}};
  }
  if (name == "stop") {
    std::string reason = "stop";
    CAISSON_TRY_VOID(verify::ReadOptional(message, "", "reason", reason, verify::ReadSentence, 200));
    connections_.at(client).wants_stop = true;
    Finish(reason);
    return json::object();
  }
  return FileRequest(name, message, fds);
}

Supervisor::Reply Supervisor::FileRequest(const std::string& name, const json& message, std::vector<UniqueFd>& fds) {
  if (name != "open" && name != "stat" && name != "list" && name != "mkdir" && name != "link" && name != "remove")
    return Error::Invalid("unknown request");
  CAISSON_TRY(const std::string path, verify::ReadRequired(message, "", "path", BytesFromJson));
  if (path.empty() || path[0] != '/') return Error::Invalid("path: must be absolute");
  int64_t mode = 0644;
  CAISSON_TRY_VOID(verify::ReadOptional(message, "", "mode", mode, verify::ReadInteger, 0, 07777));
  if (name == "open") {
    const bool writes = message.value("write", false);
    CAISSON_TRY(UniqueFd file, run_->OpenFile(path, writes ? runtime::OpenFor::kWriting : runtime::OpenFor::kReading,
                                              static_cast<mode_t>(mode) & 0777));
    fds.push_back(std::move(file));
    return json::object();
  }
  if (name == "stat") {
    CAISSON_TRY(const runtime::InsideFileInfo info, run_->Stat(path));
    return json{{"file", ToJson(info)}};
  }
  if (name == "list") {
    CAISSON_TRY(const std::vector<runtime::InsideFileInfo> files, run_->ListDirectory(path));
    json list = json::array();
    for (const runtime::InsideFileInfo& info : files) list.push_back(ToJson(info));
    return json{{"files", std::move(list)}};
  }
  if (name == "mkdir") {
    CAISSON_TRY_VOID(run_->MakeDirectories(path, static_cast<mode_t>(mode) & 0777));
  } else if (name == "link") {
    CAISSON_TRY(const std::string target, verify::ReadRequired(message, "", "target", BytesFromJson));
    CAISSON_TRY_VOID(run_->MakeLink(path, target));
  } else {
    CAISSON_TRY_VOID(run_->Remove(path));
  }
  return json::object();
}

Supervisor::Reply Supervisor::Status_() {
  json commands = json::array();
  for (const auto& [number, command] : commands_) commands.push_back(session::ToJson(*command));
  const runtime::LiveUsage usage = run_->ReadUsage();
  json used = json::object();
  for (const auto& [name, value] :
       {std::pair{"cpu_ms", usage.cpu_ms}, std::pair{"memory_bytes", usage.memory_bytes},
        std::pair{"peak_memory_bytes", usage.peak_memory_bytes}, std::pair{"processes", usage.processes},
        std::pair{"scratch_bytes", usage.scratch_bytes}}) {
    if (value) used[name] = *value;
  }
  used["disk_bytes"] = meter_->bytes();
  return json{{"session", PublicJson(record_)}, {"commands", std::move(commands)}, {"usage", std::move(used)}};
}

void Supervisor::Send(uint64_t client, const json& message, std::vector<UniqueFd> fds) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  // A connection that fails is noticed when it is read.
  if (!connection.channel.Send(message, std::move(fds))) ::shutdown(connection.channel.fd(), SHUT_RDWR);
  if (connection.channel.has_queued()) reactor_.Change(connection.tag, EPOLLIN | EPOLLOUT);
}

void Supervisor::Disconnect(uint64_t client) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  reactor_.Remove(found->second.tag);
  const std::set<uint32_t> attached = std::move(found->second.commands);
  EndForwards(found->second.forwards);
  if (found->second.uses) last_used_ms_ = MonotonicNanos() / 1'000'000;
  connections_.erase(found);
  for (const uint32_t number : attached) {
    if (const auto command = commands_.find(number); command != commands_.end()) Leave(*command->second, client, false);
  }
  if (held_by_ == client) Release();
}

void Supervisor::Release() {
  held_by_ = 0;
  if (const Status resumed = run_->Resume(); !resumed) return Finish(resumed.error().message, true);
  std::vector<uint64_t> clients;
  for (const auto& [client, connection] : connections_) clients.push_back(client);
  for (const uint64_t client : clients) Process(client);
}

}  // namespace caisson::session
