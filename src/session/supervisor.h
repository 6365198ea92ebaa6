// The process of one session: it opens the sandbox, runs commands in it on behalf of clients that connect to
// control.sock, records what happens, and ends the sandbox when it is asked to, when the session has been idle for too
// long, or when its time is over. If this process dies, the sandbox dies with it.
//
// A client sends requests and gets a reply to each, in order: {"request": NAME, …} → {"reply": NAME, …} or
// {"reply": NAME, "error": {"kind": …, "message": …}}. Between replies it gets events: {"event": NAME, …}. Streams are
// pipes, whose other ends come with the reply; `streams` names them in order.
//
//   exec     a CommandRequest; streams input?, output, error?; later the events `ended` and `gap`
//   attach   command?: follow one that was started before, from what is kept of its output on; write: also its input
//   detach, signal, resize, input_end, end   for a command of this connection or, with `command`, another
//   status   the record, the commands, usage
//   open, stat, list, mkdir, link, remove    files inside (session/client.h)
//   hold, release    stops every process, so that the layer can be read; ends with the connection, too
//   note     an event that the client caused: file_in, file_out, diff_computed, applied, discarded, apply_failed
//   extend   idle_ms, ttl_ms;  stop  reason: the reply comes when nothing of the sandbox is left
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/runtime.h"
#include "session/channel.h"
#include "session/command.h"
#include "session/directory.h"
#include "session/layer_meter.h"
#include "session/open_request.h"
#include "session/reactor.h"
#include "session/session_events.h"
#include "session/session_record.h"
#include "session/transcript.h"

namespace caisson::session {

class Supervisor {
 public:
  // Everything up to the sandbox and the control socket. An error leaves a record of state `failed` where there is one.
  static Result<std::unique_ptr<Supervisor>> Open(SessionDirectory directory, const runtime::Runtimes& runtimes,
                                                  const OpenImage& open_image);
  const Record& record() const { return record_; }
  // Until the session ends.
  void Run();

 private:
  struct Connection {
    explicit Connection(UniqueFd socket) : channel(std::move(socket)) {}
    Channel channel;
    uint32_t tag = 0;
    std::deque<Message> waiting;
    std::set<uint32_t> commands;  // attached to
    bool wants_stop = false;
    bool uses = false;  // more than looking
  };
  using Reply = Result<nlohmann::json>;

  Supervisor(SessionDirectory directory, UniqueFd lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}
  Status OpenRun(const runtime::Runtimes& runtimes, const OpenImage& open_image);
  Status Record_(const OpenRequest& request);
  Status Listen();

  // supervisor.cc: the session's life.
  void HandleRunEvents();
  void HandleRunEvent(const runtime::LiveEvent& event);
  void CheckTimes();
  int MsUntilNext() const;
  void Finish(const std::string& reason, bool failed = false);
  void SetState();
  void SaveRecord();
  Status Note(SessionEventType type, nlohmann::json members);
  bool HasRunning() const;
  bool IsIdle() const;

  // supervisor_commands.cc: commands.
  Result<nlohmann::json> Exec(uint64_t client, const nlohmann::json& message, std::vector<UniqueFd>& fds);
  Result<nlohmann::json> Attach(uint64_t client, const nlohmann::json& message, std::vector<UniqueFd>& fds);
  Status AddReaders(SessionCommand& command, uint64_t client, bool patient, nlohmann::json& reply,
                    std::vector<UniqueFd>& fds);
  Status AddWriter(SessionCommand& command, uint64_t client, nlohmann::json& reply, std::vector<UniqueFd>& fds);
  void Leave(SessionCommand& command, uint64_t client, bool asked);
  void EndCommand(SessionCommand& command, Stop why);
  void CommandEnded(SessionCommand& command, const CommandOutcome& outcome);
  void TellEnd(const SessionCommand& command, uint64_t client);
  void OnOutput(SessionCommand& command, bool error, std::string_view bytes);
  void SaveCommand(SessionCommand& command);
  Result<SessionCommand*> FindCommand(const nlohmann::json& message);
  std::unique_ptr<OutputPump> MakePump(SessionCommand& command, UniqueFd source, bool error);
  void EndOverLimit(const std::string& why);

  // supervisor_requests.cc: clients.
  void OnConnection();
  void OnMessages(uint64_t client, uint32_t events);
  void Process(uint64_t client);
  void Answer(uint64_t client, Message message);
  Reply Dispatch(uint64_t client, const std::string& name, const nlohmann::json& message, std::vector<UniqueFd>& fds);
  Reply FileRequest(const std::string& name, const nlohmann::json& message, std::vector<UniqueFd>& fds);
  Reply Status_();
  void Send(uint64_t client, const nlohmann::json& message, std::vector<UniqueFd> fds = {});
  void Disconnect(uint64_t client);
  void Release();

  SessionDirectory directory_;
  UniqueFd lock_;
  OpenRequest request_;
  Record record_;
  policy::Limits limits_;
  std::vector<std::string> mount_targets_;
  std::unique_ptr<runtime::LiveRun> run_;
  std::optional<SessionEventLog> events_;
  std::optional<TranscriptWriter> transcript_;
  std::optional<LayerMeter> meter_;
  Reactor reactor_;
  UniqueFd listener_, signals_, commands_directory_;
  uint32_t run_tag_ = 0;
  std::map<uint64_t, Connection> connections_;
  std::map<uint32_t, std::unique_ptr<SessionCommand>> commands_;
  uint64_t last_connection_ = 0;
  uint64_t held_by_ = 0;
  int64_t most_ttl_ms_ = 0;  // that policy granted or the profile allows
  int64_t opened_ms_ = 0, last_used_ms_ = 0, next_meter_ms_ = 0, synced_ms_ = 0;
  bool finished_ = false;
};

}  // namespace caisson::session
