// The supervisor's commands: starting, following, limiting and recording them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "base/utf8.h"
#include "session/json_bytes.h"
#include "session/supervisor.h"
#include "verify/json_fields.h"
#include "verify/result.h"

namespace caisson::session {

using nlohmann::json;

namespace {

constexpr size_t kMostRunning = 256;
constexpr char kDefaultDirectory[] = "/workspace";

int64_t NowMs() { return MonotonicNanos() / 1'000'000; }

// {ours, theirs}
Result<std::pair<UniqueFd, UniqueFd>> MakePipe(bool ours_writes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  if (ours_writes) return std::pair{std::move(write_end), std::move(read_end)};
  return std::pair{std::move(read_end), std::move(write_end)};
}

// For transcripts: one line that people recognise.
std::string TextOf(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) {
    if (text.size() > 500) return text + " …";
    text += (text.empty() ? "" : " ") + EscapeForTerminal(word.substr(0, 500));
  }
  return text;
}

Violation LimitViolation(ViolationClass violation_class, const char* reason, int64_t limit) {
  Violation violation;
  violation.violation_class = violation_class;
  violation.reason = reason;
  violation.limit = limit;
  return violation;
}

}  // namespace

Result<SessionCommand*> Supervisor::FindCommand(const json& message) {
  uint32_t number = 0;
  if (const json* member = verify::FindMember(message, "command")) {
    CAISSON_TRY(const int64_t value, verify::ReadInteger(*member, "command", 1, UINT32_MAX));
    number = static_cast<uint32_t>(value);
  } else {
    // The latest that still runs, else the latest.
    for (const auto& [candidate, command] : commands_) {
      if (number == 0 || command->running() || !commands_[number]->running()) number = candidate;
    }
  }
  const auto found = commands_.find(number);
  if (found == commands_.end())
    return Error::NotFound(number == 0 ? "no command was started yet"
                                       : "there is no command " + std::to_string(number) + " to attach to");
  return found->second.get();
}

Result<json> Supervisor::Exec(uint64_t client, const json& message, std::vector<UniqueFd>& fds) {
  CAISSON_TRY(CommandRequest request, ReadCommandRequest(message));
  // Otherwise a missing directory would look like a missing program.
  if (request.cwd != "/" && request.cwd != kDefaultDirectory) {
    const Result<runtime::InsideFileInfo> there = run_->Stat(request.cwd);
    // Paths that end in dots are left to the kernel.
    const bool named = there || there.error().kind != ErrorKind::kInvalid;
    if (named && (!there || !S_ISDIR(S_ISLNK(there->mode) ? there->target_mode : there->mode)))
      return Error::Invalid("cwd: there is no directory " + EscapeForTerminal(request.cwd) + " inside");
  }
  const auto running =
      std::count_if(commands_.begin(), commands_.end(), [](const auto& entry) { return entry.second->running(); });
  if (static_cast<size_t>(running) >= kMostRunning)
    return Error::Exhausted("there are " + std::to_string(kMostRunning) + " commands running: wait for one to end");
  if (request.timeout_ms == 0 && !request.terminal && !request.detached)
    request.timeout_ms = record_.command_timeout_ms;
  const auto number = static_cast<uint32_t>(record_.commands + 1);
  json members = {{"command", number},
                  {"argv", BytesToJson(request.argv)},
                  {"cwd", BytesToJson(std::string_view(request.cwd))},
                  {"terminal", request.terminal},
                  {"timeout_ms", request.timeout_ms}};
  CAISSON_TRY_VOID(Note(SessionEventType::kCommandStarted, std::move(members)));
  record_.commands = number;
  auto command = std::make_unique<SessionCommand>();
  command->number = number;
  command->started_at = UtcNow();
  runtime::Command lowered{request.argv, request_.env, request.cwd};
  lowered.env.insert(lowered.env.end(), request.env.begin(), request.env.end());
  runtime::LiveCommandOptions options;
  options.terminal = request.terminal;
  options.input = request.input;
  options.rows = request.rows;
  options.columns = request.columns;
  Result<runtime::LiveCommand> live = run_->Begin(lowered, options);
  if (!live) {
    (void)Note(SessionEventType::kCommandFinished,
               {{"command", number}, {"exit_code", nullptr}, {"error", live.error().message}});
    return std::move(live).error();
  }
  const std::string file = std::to_string(number);
  CAISSON_TRY(command->kept_output, KeptOutput::Create(commands_directory_.get(), file + ".out"));
  if (!request.terminal) {
    CAISSON_TRY(command->kept_error, KeptOutput::Create(commands_directory_.get(), file + ".err"));
  }
  command->live = *std::move(live);
  command->request = std::move(request);
  if (command->request.timeout_ms > 0) command->deadline_ms = NowMs() + command->request.timeout_ms;
  (void)transcript_->CommandBegan(number, TextOf(command->request.argv), MonotonicNanos());
  if (command->request.terminal) {
    (void)transcript_->Resize(number, command->request.rows, command->request.columns, MonotonicNanos());
    UniqueFd master(::fcntl(command->live.output.get(), F_DUPFD_CLOEXEC, 3));
    UniqueFd typed(::fcntl(command->live.output.get(), F_DUPFD_CLOEXEC, 3));
    if (!master || !typed) return Error::System(errno, "copy the terminal's descriptor");
    command->input = std::make_unique<InputPump>(
        reactor_, std::move(typed), true,
        [this, number](std::string_view bytes) { (void)transcript_->Input(number, bytes, MonotonicNanos()); });
    command->output = MakePump(*command, std::move(master), false);
  } else {
    if (command->live.input)
      command->input = std::make_unique<InputPump>(reactor_, std::move(command->live.input), false, nullptr);
    command->output = MakePump(*command, std::move(command->live.output), false);
    command->error = MakePump(*command, std::move(command->live.error), true);
  }
  SessionCommand& started = *command;
  commands_[number] = std::move(command);
  SaveCommand(started);
  json reply = {{"command", number}};
  if (!started.request.detached) {
    started.owner = client;
    if (started.input) CAISSON_TRY_VOID(AddWriter(started, client, reply, fds));
    CAISSON_TRY_VOID(AddReaders(started, client, true, reply, fds));
  }
  SetState();
  SaveRecord();
  return reply;
}

std::unique_ptr<OutputPump> Supervisor::MakePump(SessionCommand& command, UniqueFd source, bool error) {
  OutputPump::Callbacks callbacks;
  callbacks.on_bytes = [this, &command, error](std::string_view bytes) { OnOutput(command, error, bytes); };
  callbacks.on_end = [this, &command]() { SaveCommand(command); };
  callbacks.on_gap = [this, &command](uint64_t client, int64_t missing) {
    Send(client, {{"event", "gap"}, {"command", command.number}, {"bytes", missing}});
  };
  return std::make_unique<OutputPump>(reactor_, std::move(source), std::move(callbacks));
}

void Supervisor::OnOutput(SessionCommand& command, bool error, std::string_view bytes) {
  (void)transcript_->Output(command.number, bytes, MonotonicNanos());
  (error ? command.kept_error : command.kept_output)->Add(bytes);
  const int64_t before = command.output_bytes;
  command.output_bytes += static_cast<int64_t>(bytes.size());
  // A terminal is watched by a person for hours; only what is kept of it is bounded.
  if (command.request.terminal || !command.running()) return;
  if (before <= limits_.output_bytes && command.output_bytes > limits_.output_bytes)
    EndCommand(command, Stop::kOutputLimit);
}

Status Supervisor::AddReaders(SessionCommand& command, uint64_t client, bool patient, json& reply,
                              std::vector<UniqueFd>& fds) {
  int64_t missing = 0;
  for (const auto& [name, pump] : {std::pair{"output", &command.output}, std::pair{"error", &command.error}}) {
    if (!*pump) continue;
    CAISSON_TRY(auto ends, MakePipe(true));
    missing += (*pump)->AddReader(client, std::move(ends.first), patient);
    fds.push_back(std::move(ends.second));
    reply["streams"].push_back(name);
  }
  reply["missing"] = missing;
  connections_.at(client).commands.insert(command.number);
  return {};
}

Status Supervisor::AddWriter(SessionCommand& command, uint64_t client, json& reply, std::vector<UniqueFd>& fds) {
  CAISSON_TRY(auto ends, MakePipe(false));
  command.input->SetSource(std::move(ends.first));
  command.writer = client;
  fds.push_back(std::move(ends.second));
  reply["streams"].push_back("input");
  return {};
}

Result<json> Supervisor::Attach(uint64_t client, const json& message, std::vector<UniqueFd>& fds) {
  CAISSON_TRY(SessionCommand* const command, FindCommand(message));
  if (connections_.at(client).commands.count(command->number) != 0)
    return Error::Conflict("this connection is attached to command " + std::to_string(command->number) + " already");
  json reply = {{"command", command->number}, {"terminal", command->request.terminal}, {"writes", false}};
  const bool wants_input = message.value("write", false);
  if (wants_input && command->running() && command->input && command->writer == 0) {
    CAISSON_TRY_VOID(AddWriter(*command, client, reply, fds));
    reply["writes"] = true;
  }
  CAISSON_TRY_VOID(AddReaders(*command, client, false, reply, fds));
  (void)Note(SessionEventType::kAttached, {{"command", command->number}, {"writes", reply["writes"]}});
  return reply;
}

void Supervisor::TellEnd(const SessionCommand& command, uint64_t client) {
  json event = {{"event", "ended"}, {"command", command.number}};
  event.update(ToJson(*command.end));
  Send(client, event);
}

void Supervisor::Leave(SessionCommand& command, uint64_t client, bool asked) {
  const bool wrote = command.writer == client;
  command.output->RemoveReader(client);
  if (command.error) command.error->RemoveReader(client);
  if (wrote) {
    if (command.input && command.request.terminal) command.input->SetSource(UniqueFd());
    command.writer = 0;
  }
  if (!command.running()) return;
  (void)Note(SessionEventType::kDetached, {{"command", command.number}});
  // Without a terminal the client stands for the command: who kills it means the command too.
  if (!asked && !command.request.terminal && command.owner == client) EndCommand(command, Stop::kClientGone);
}

void Supervisor::EndCommand(SessionCommand& command, Stop why) {
  if (command.stop == Stop::kNone) command.stop = why;
  if (const Status ended = run_->EndCommand(command.live.id); !ended)
    std::fprintf(stderr, "%s end command %u: %s\n", UtcNow().c_str(), command.number, ended.error().message.c_str());
}

void Supervisor::CommandEnded(SessionCommand& command, const CommandOutcome& outcome) {
  CommandEnd end = EndOf(outcome);
  std::optional<Violation> violation;
  switch (command.stop) {
    case Stop::kTimeout:
      end.ending = "timeout";
      end.exit_code = 124;
      violation = LimitViolation(ViolationClass::kTimeout, "command_timeout_ms", command.request.timeout_ms);
      break;
    case Stop::kOutputLimit:
      end.ending = "output_limit";
      violation = LimitViolation(ViolationClass::kOutputLimit, "output_bytes", limits_.output_bytes);
      break;
    case Stop::kDiskLimit:
      end.ending = "scratch_limit";
      break;
    case Stop::kClientGone:
    case Stop::kAsked:
    case Stop::kSession:
      end.ending = "cancelled";
      break;
    case Stop::kNone:
      break;
  }
  if (command.stop != Stop::kNone && end.exit_code == 0) end.exit_code = 128 + 9;
  if (command.stop != Stop::kNone && outcome.ending == Ending::kCancelled && command.stop != Stop::kTimeout)
    end.exit_code = 128 + 9;
  command.end = std::move(end);
  command.ended_at = UtcNow();
  if (violation) {
    violation->time_ms = outcome.duration_ms;
    (void)Note(SessionEventType::kViolation, {{"command", command.number}, {"violation", verify::ToJson(*violation)}});
  }
  // A client that reads in its record that it ended finds all of its output.
  command.drains = true;
  command.output->CommandEnded();
  if (command.error) command.error->CommandEnded();
  command.drains = false;
  if (command.input) command.input->CloseTarget();
  command.writer = 0;
  (void)transcript_->CommandEnded(command.number, command.end->exit_code, MonotonicNanos());
  json members = {{"command", command.number}};
  members.update(ToJson(*command.end));
  members["output_bytes"] = command.output_bytes;
  members["transcript"] = ToJson(transcript_->digest());
  (void)Note(SessionEventType::kCommandFinished, std::move(members));
  SaveCommand(command);
  for (const auto& [client, connection] : connections_) {
    if (connection.commands.count(command.number) != 0) TellEnd(command, client);
  }
  last_used_ms_ = NowMs();
  record_.last_used_at = UtcNow();
  SetState();
}

void Supervisor::SaveCommand(SessionCommand& command) {
  if (command.drains) return;
  const bool closed = !command.output->has_source() && (!command.error || !command.error->has_source());
  const bool final = !command.running() && (closed || finished_);
  if (final && !command.saved) {
    command.saved = true;
    int64_t dropped = command.kept_output->Finish(command.output->kept());
    if (command.error) dropped += command.kept_error->Finish(command.error->kept());
    if (dropped > 0)
      (void)Note(SessionEventType::kOutputTruncated, {{"command", command.number}, {"dropped_bytes", dropped}});
  }
  const std::string name = "commands/" + std::to_string(command.number) + ".json";
  const std::string text = ToJson(command).dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  if (const Status saved = directory_.WriteText(name.c_str(), text); !saved)
    std::fprintf(stderr, "%s %s\n", UtcNow().c_str(), saved.error().message.c_str());
}

void Supervisor::EndOverLimit(const std::string& why) {
  const bool news = std::any_of(commands_.begin(), commands_.end(), [](const auto& entry) {
    return entry.second->running() && entry.second->stop == Stop::kNone;
  });
  if (!news) return;
  Violation violation = LimitViolation(ViolationClass::kFilesystemWrite, "scratch_limit", record_.disk_bytes);
  violation.evidence.emplace_back("found", why);
  violation.evidence.emplace_back("path", std::string("/workspace"));
  violation.suggestion = "open the session with a larger --disk";
  (void)Note(SessionEventType::kViolation, {{"violation", verify::ToJson(violation)}});
  for (auto& [number, command] : commands_) {
    if (command->running()) EndCommand(*command, Stop::kDiskLimit);
  }
}

}  // namespace caisson::session
