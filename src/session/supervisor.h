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
//   note     an event that the client caused: file_in, file_out, diff_computed, apply_begun, applied, discarded,
//   apply_failed approvals        the questions that wait for an approver; approve (approval, scope) and deny
//   (approval, reason) answer one forward  port, inside_port: a server inside can be reached at 127.0.0.1 until the
//   connection ends extend idle_ms, ttl_ms;  stop  reason: the reply comes when nothing of the sandbox is left
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
#include "session/approvals.h"
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
    int64_t uid = -1, pid = -1;
    std::set<uint16_t> forwards;  // ports outside
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

  // supervisor_approvals.cc: what a person is asked.
  void AskAboutConnection(const NetworkQuestion& question);
  Reply ListApprovals() const;
  Reply Approve(uint64_t client, const nlohmann::json& message);
  Reply Deny(uint64_t client, const nlohmann::json& message);
  Result<Approval*> FindApproval(const nlohmann::json& message);
  Approval* Ask(Approval approval, const std::string& policy_digest);
  Status Grant(const Approval& approval, const AskEffect& effect, NetworkAnswer::Scope scope);
  Status CloseApproval(const Approval& approval, SessionEventType type, nlohmann::json members);
  void Refuse(const Approval& approval, NetworkAnswer::Scope scope, const std::string& why);
  void ExpireApprovals();
  void EndApprovals();
  void TellOfApproval(const nlohmann::json& event);

  // supervisor_asking.cc: ask.sock, where programs inside ask.
  struct Asker {
    UniqueFd socket;
    uint32_t tag = 0;
    std::string line;
    bool asked = false;
    int64_t until_ms = 0;  // for its line
  };
  Status OfferAsking(policy::RunPlan& plan);
  Status ListenForAskers();
  void OnAsker();
  void OnAskerBytes(uint64_t asker);
  void TakeAsk(uint64_t asker, std::string_view line);
  void AnswerAsker(uint64_t asker, bool granted, const std::string& text);
  void DropAsker(uint64_t asker);
  void DropLateAskers(int64_t now_ms);

  // supervisor_ports.cc
  Reply Forward(uint64_t client, const nlohmann::json& message);
  void EndForwards(const std::set<uint16_t>& ports);

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
  const runtime::Runtimes* runtimes_ = nullptr;
  OpenRequest request_;
  policy::Profile profile_;  // as the sandbox runs, with what was granted since
  Record record_;
  policy::Limits limits_;
  std::unique_ptr<runtime::LiveRun> run_;
  std::optional<SessionEventLog> events_;
  std::optional<TranscriptWriter> transcript_;
  std::optional<LayerMeter> meter_;
  Reactor reactor_;
  UniqueFd listener_, signals_, commands_directory_, ask_listener_;
  std::optional<Approvals> approvals_;
  std::map<uint64_t, Asker> askers_;
  uint64_t last_asker_ = 0;
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
