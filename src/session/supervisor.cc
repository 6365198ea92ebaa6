#include "session/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "linux/files.h"
#include "session/manifest.h"
#include "session/stamp.h"
#include "verify/result.h"

namespace caisson::session {

using nlohmann::json;

namespace {

int64_t NowMs() { return MonotonicNanos() / 1'000'000; }

constexpr size_t kMaxRequestFile = size_t{8} << 20;
constexpr int64_t kSyncPauseMs = 1000;
constexpr int64_t kFreeSpacePauseMs = 1000;
// Commands of which nothing runs any more and whose output is saved are forgotten beyond this number.
constexpr size_t kMostEndedCommands = 64;

UniqueFd TakeEndingSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::Open(SessionDirectory directory, const runtime::Runtimes& runtimes,
                                                     const OpenImage& open_image) {
  CAISSON_TRY(UniqueFd lock, directory.LockAsSupervisor());
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(directory), std::move(lock)));
  supervisor->signals_ = TakeEndingSignals();
  supervisor->runtimes_ = &runtimes;
  Status opened = supervisor->OpenRun(runtimes, open_image);
  if (!opened) {
    if (!supervisor->record_.id.empty()) {
      supervisor->record_.state = State::kFailed;
      supervisor->record_.reason = opened.error().message;
      supervisor->record_.ended_at = UtcNow();
      supervisor->SaveRecord();
    }
    return std::move(opened).error();
  }
  return supervisor;
}

Status Supervisor::Record_(const OpenRequest& request) {
  CAISSON_TRY(const UniqueFd names, LockNames(directory_.root()));
  CAISSON_TRY(record_.name, ChooseName(directory_.root(), request.name, request.project));
  record_.id = directory_.id();
  record_.workspace = request.project;
  record_.workspace_mode = request.workspace_mode;
  record_.profile = request.profile;
  record_.idle_ms = request.idle_ms;
  record_.ttl_ms = request.ttl_ms;
  record_.labels = request.labels;
  record_.forked_from = request.forked_from;
  record_.pid = ::getpid();
  record_.uid = ::geteuid();
  record_.created_at = UtcNow();
  return directory_.WriteRecord(record_);
}

Status Supervisor::OpenRun(const runtime::Runtimes& runtimes, const OpenImage& open_image) {
  CAISSON_TRY(const std::string text, directory_.ReadText("request.json", kMaxRequestFile));
  CAISSON_TRY(request_, ReadOpenRequest(text));
  CAISSON_TRY_VOID(Record_(request_));
  WorkspaceMode mode = request_.workspace_mode;
  while (true) {
    Result<AdmittedSession> admitted = Admit(request_, mode, directory_, runtimes, open_image);
    if (!admitted) return std::move(admitted).error();
    record_.workspace_mode = mode;
    record_.workspace = admitted->project;
    record_.workspace_base = admitted->base;
    record_.policy_digest = admitted->policy_digest;
    record_.disk_bytes = admitted->disk_bytes;
    record_.profile = admitted->plan.profile.name;
    record_.runtime = admitted->plan.decision.runtime;
    record_.stamp = admitted->stamp;
    record_.ttl_ms = admitted->plan.limits.budget_ms;
    record_.command_timeout_ms = admitted->plan.limits.command_timeout_ms;
    record_.network_mode = policy::kNetworkModeNames[static_cast<size_t>(admitted->plan.profile.network.mode)];
    record_.allow = admitted->plan.profile.network.allow;
    limits_ = admitted->plan.limits;
    profile_ = admitted->plan.profile;
    most_ttl_ms_ = std::max(limits_.budget_ms, admitted->plan.profile.limits.budget_ms);
    CAISSON_TRY_VOID(OfferAsking(admitted->plan));
    runtime::Runtime& chosen = runtime::Chosen(runtimes, admitted->plan.decision);
    Result<std::unique_ptr<runtime::LiveRun>> run = chosen.Open(std::move(admitted->plan));
    if (run) {
      run_ = *std::move(run);
      break;
    }
    // An overlay is impossible on some file systems. A fork's layer cannot become a copy.
    if (mode == WorkspaceMode::kCopy || request_.workspace_mode == WorkspaceMode::kCopy ||
        !request_.forked_from.empty())
      return std::move(run).error();
    record_.notices.push_back("the workspace is a private copy, because no overlay could be made: " +
                              run.error().message);
    mode = WorkspaceMode::kCopy;
  }
  CAISSON_TRY(SessionEventLog events, SessionEventLog::Open(directory_.File("events.jsonl"), record_.id));
  events_ = std::move(events);
  TranscriptHeader header;
  header.timestamp = UnixMillis() / 1000;
  header.title = record_.name;
  CAISSON_TRY(TranscriptWriter transcript, TranscriptWriter::Open(directory_.fd(), "transcript.cast", header, {}));
  transcript_ = std::move(transcript);
  if (::mkdirat(directory_.fd(), "commands", 0700) != 0 && errno != EEXIST)
    return Error::System(errno, "make the directory for output");
  CAISSON_TRY(commands_directory_, linux_sys::OpenAt(directory_.fd(), "commands", O_RDONLY | O_DIRECTORY));
  const char* tree = record_.workspace_mode == WorkspaceMode::kCopy ? "copy" : "layer/upper";
  CAISSON_TRY(UniqueFd tree_fd, linux_sys::OpenAt(directory_.fd(), tree, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  meter_.emplace(std::move(tree_fd), LayerLimits{record_.disk_bytes, limits_.scratch_inodes});
  approvals_.emplace(record_.id, profile_.approvals.wait_ms);
  CAISSON_TRY_VOID(Listen());
  CAISSON_TRY_VOID(Note(SessionEventType::kSessionOpened, {{"project", record_.workspace},
                                                           {"profile", record_.profile},
                                                           {"name", record_.name},
                                                           {"workspace_mode", NameOf(record_.workspace_mode)},
                                                           {"policy_digest", record_.policy_digest},
                                                           {"forked_from", record_.forked_from},
                                                           {"isolation", verify::ToJson(run_->isolation())}}));
  for (const std::string& wall : run_->isolation().degraded) record_.notices.push_back("degraded: " + wall);
  opened_ms_ = last_used_ms_ = NowMs();
  record_.opened_at = record_.last_used_at = UtcNow();
  record_.expires_at = UtcTime(UnixMillis() + record_.ttl_ms);
  record_.state = State::kIdle;
  run_tag_ = reactor_.Add(run_->descriptor(), EPOLLIN, [this](uint32_t) { HandleRunEvents(); });
  reactor_.Add(signals_.get(), EPOLLIN, [this](uint32_t) {
    struct signalfd_siginfo info {};
    if (::read(signals_.get(), &info, sizeof(info)) == ssize_t{sizeof(info)})
      Finish(std::string("signal ") + ::strsignal(static_cast<int>(info.ssi_signo)));
  });
  return directory_.WriteRecord(record_);
}

Status Supervisor::Listen() {
  listener_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return Error::System(errno, "make the control socket");
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  // The directory's own path may be longer than an address can be.
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/control.sock", directory_.fd());
  ::unlinkat(directory_.fd(), "control.sock", 0);
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(listener_.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof(address));
  ::umask(mask);
  if (bound != 0 || ::listen(listener_.get(), 64) != 0) return Error::System(errno, "make the control socket");
  reactor_.Add(listener_.get(), EPOLLIN, [this](uint32_t) { OnConnection(); });
  return {};
}

Status Supervisor::Note(SessionEventType type, json members) {
  const Result<audit::Head> head = events_->Write(type, std::move(members));
  if (!head) {
    std::fprintf(stderr, "%s events.jsonl: %s\n", UtcNow().c_str(), head.error().message.c_str());
    return head.error();
  }
  record_.events_head = audit::FormatHead(*head);
  return {};
}

void Supervisor::SaveRecord() {
  if (const Status saved = directory_.WriteRecord(record_); !saved)
    std::fprintf(stderr, "%s %s\n", UtcNow().c_str(), saved.error().message.c_str());
}

bool Supervisor::HasRunning() const {
  return std::any_of(commands_.begin(), commands_.end(), [](const auto& entry) { return entry.second->running(); });
}

bool Supervisor::IsIdle() const {
  return !HasRunning() &&
         std::none_of(connections_.begin(), connections_.end(), [](const auto& entry) { return entry.second.uses; });
}

void Supervisor::SetState() {
  if (finished_) return;
  const State state = HasRunning() ? State::kRunning : State::kIdle;
  if (state == record_.state) return;
  record_.state = state;
  record_.last_used_at = UtcNow();
  SaveRecord();
}

void Supervisor::HandleRunEvents() {
  for (const runtime::LiveEvent& event : run_->Turn()) {
    if (!finished_) HandleRunEvent(event);
  }
}

void Supervisor::HandleRunEvent(const runtime::LiveEvent& event) {
  using Kind = runtime::LiveEvent::Kind;
  switch (event.kind) {
    case Kind::kCommandEnded:
      for (auto& [number, command] : commands_) {
        if (command->live.id == event.command && command->running()) return CommandEnded(*command, event.outcome);
      }
      return;
    case Kind::kViolation:
      if (event.violation) {
        json members = {{"violation", verify::ToJson(*event.violation)}};
        if (event.command != 0) members["command"] = event.command;
        (void)Note(SessionEventType::kViolation, std::move(members));
      }
      return;
    case Kind::kNetwork: {
      json members = {{"network", verify::ToJson(event.network)}};
      if (event.command != 0) members["command"] = event.command;
      (void)Note(event.network.allowed ? SessionEventType::kNetworkAllowed : SessionEventType::kNetworkDenied,
                 std::move(members));
      if (event.network.allowed) return;
      for (const auto& [client, connection] : connections_) {
        if (!connection.commands.empty())
          Send(client, {{"event", "network_denied"}, {"network", verify::ToJson(event.network)}});
      }
      return;
    }
    case Kind::kQuestion:
      return AskAboutConnection(event.question);
    case Kind::kRunEnded:
      return Finish(event.reason.empty() ? "the sandbox ended" : event.reason, true);
  }
}

int Supervisor::MsUntilNext() const {
  const int64_t now = NowMs();
  int64_t next = opened_ms_ + record_.ttl_ms;
  bool running = false;
  for (const auto& [number, command] : commands_) {
    if (!command->running()) continue;
    running = true;
    if (command->deadline_ms != 0) next = std::min(next, command->deadline_ms);
  }
  if (IsIdle()) next = std::min(next, last_used_ms_ + record_.idle_ms);
  if (running && held_by_ == 0) next = std::min(next, next_meter_ms_);
  if (events_->needs_sync()) next = std::min(next, synced_ms_ + kSyncPauseMs);
  if (const std::optional<int64_t> expiry = approvals_->next_expiry_ms()) next = std::min(next, *expiry);
  for (const auto& [number, asker] : askers_) {
    if (!asker.asked) next = std::min(next, asker.until_ms);
  }
  int64_t wait = std::max<int64_t>(0, next - now);
  if (const int64_t turn = run_->MsUntilTurn(); turn >= 0) wait = std::min(wait, turn);
  return static_cast<int>(std::min<int64_t>(wait, 60'000));
}

void Supervisor::CheckTimes() {
  const int64_t now = NowMs();
  bool running = false;
  for (auto& [number, command] : commands_) {
    if (!command->running()) continue;
    running = true;
    if (command->deadline_ms != 0 && now >= command->deadline_ms) {
      command->deadline_ms = 0;
      EndCommand(*command, Stop::kTimeout);
    }
  }
  ExpireApprovals();
  DropLateAskers(now);
  if (now >= opened_ms_ + record_.ttl_ms) return Finish("ttl");
  if (IsIdle() && now >= last_used_ms_ + record_.idle_ms) return Finish("idle");
  if (running && held_by_ == 0 && now >= next_meter_ms_) {
    const std::string fault = meter_->Step(now);
    // Free space is looked at more often than the tree is walked.
    next_meter_ms_ = std::clamp(meter_->next_ms(), now + 1, now + kFreeSpacePauseMs);
    if (!fault.empty()) {
      next_meter_ms_ = now + kFreeSpacePauseMs;
      EndOverLimit(fault);
    }
  }
  if (events_->needs_sync() && now >= synced_ms_ + kSyncPauseMs) {
    synced_ms_ = now;
    if (const Status synced = events_->Sync(); !synced) std::fprintf(stderr, "%s\n", synced.error().message.c_str());
  }
}

void Supervisor::Run() {
  while (!finished_) {
    reactor_.Turn(MsUntilNext());
    if (finished_) break;
    if (run_->MsUntilTurn() == 0) HandleRunEvents();
    if (!finished_) CheckTimes();
    // What has ended and been saved is on the disk; clients that ask for it later read it there.
    while (commands_.size() > kMostEndedCommands) {
      const auto old = std::find_if(commands_.begin(), commands_.end(), [](const auto& entry) {
        const SessionCommand& command = *entry.second;
        return command.saved && !command.output->has_readers() && (!command.error || !command.error->has_readers());
      });
      if (old == commands_.end()) break;
      commands_.erase(old);
    }
  }
}

void Supervisor::Finish(const std::string& reason, bool failed) {
  if (finished_) return;
  finished_ = true;
  // The socket goes first: who finds none knows that the session is over or about to be.
  ::unlinkat(directory_.fd(), "control.sock", 0);
  listener_.Reset();
  if (held_by_ != 0) (void)run_->Resume();
  reactor_.Remove(run_tag_);
  EndApprovals();
  meter_->Abandon();
  for (auto& [number, command] : commands_) {
    if (command->running() && command->stop == Stop::kNone) command->stop = Stop::kSession;
    if (command->running()) (void)run_->EndCommand(command->live.id);
  }
  run_->Close();
  for (auto& [number, command] : commands_) {
    if (!command->running()) continue;
    CommandOutcome outcome;
    outcome.ending = Ending::kCancelled;
    CommandEnded(*command, outcome);
  }
  for (auto& [number, command] : commands_) {
    command->output->CommandEnded();
    if (command->error) command->error->CommandEnded();
    SaveCommand(*command);
  }
  json members = {{"reason", reason}, {"commands", record_.commands}};
  if (const Result<TranscriptDigest> digest = transcript_->Finish(); digest)
    members["transcript"] = ToJson(*digest);
  else
    members["transcript_error"] = digest.error().message;
  (void)Note(SessionEventType::kSessionStopped, std::move(members));
  record_.state = failed ? State::kFailed : State::kStopped;
  record_.reason = reason;
  record_.ended_at = UtcNow();
  SaveRecord();
  for (auto& [client, connection] : connections_) {
    if (connection.wants_stop) Send(client, {{"reply", "stop"}, {"state", NameOf(record_.state)}});
  }
  // Clients read the end of their commands' output from the pipes; what the pipes did not take is in the session's
  // directory.
}

}  // namespace caisson::session
