#include "runtime/witnessed/execution.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "runtime/witnessed/streams.h"
#include "sandbox/probes.h"
#include "sandbox/violation_log.h"

namespace caisson::runtime::witnessed {

namespace {

using agent::Frame;
using agent::Kind;

constexpr int64_t kCounterIntervalMs = 50;
constexpr int64_t kLongestCounterIntervalMs = 500;
// A program that handles a refused fork does not try this many more times.
constexpr int64_t kToleratedRefusedForks = 64;
constexpr size_t kMaxPendingInput = size_t{256} << 10;
constexpr int64_t kKeepFilesMs = 60'000;

// The call must not have returned, so the command ends.
bool IsDeadly(const Violation& violation) {
  return std::any_of(violation.evidence.begin(), violation.evidence.end(), [](const auto& entry) {
    const std::string* text = std::get_if<std::string>(&entry.second);
    return entry.first == "answer" && text != nullptr && *text == "killed";
  });
}

class Execution {
 public:
  Execution(Conversation& agent, const sandbox::Spec& spec, const CommandIo& io, const ExecuteOptions& options,
            const TakeViolations& more)
      : agent_(agent),
        limits_(spec.limits),
        probes_(spec.probes),
        io_(io),
        options_(options),
        more_(more),
        streams_(io, spec.limits.output_bytes) {}

  Result<Executed> Run(const sandbox::Command& command);

 private:
  Status Start(const sandbox::Command& command);
  Status Turn();
  int NextTimeout() const;
  Status TakeFrames();
  Status OnFrame(const Frame& frame);
  Status PassInput();
  Status OnStop();
  Status CheckLimits();
  Status ReadCounters();
  Status Stop(Ending ending);
  Status TakeMore();
  Result<Executed> Finish();
  Status ConfirmMemoryLimit();
  void JudgeTime();
  void JudgeOutput();
  Status JudgeCounters();
  void Tell(const Violation& violation) {
    if (options_.on_violation) options_.on_violation(violation);
  }
  void AddLimit(ViolationClass violation_class, const std::string& reason, int64_t limit,
                std::vector<std::pair<std::string, EvidenceValue>> evidence, EvidenceSource source);
  void Forget(ViolationClass violation_class);
  bool Has(ViolationClass violation_class) const;
  int64_t ElapsedMs() const { return (MonotonicNanos() - start_ns_) / 1'000'000; }
  // The agent ends a command at its limit itself; one that has not told so by then is no longer asked.
  int64_t EndMs() const { return options_.timeout_ms + agent_.container().grace_ms(); }

  Conversation& agent_;
  const sandbox::Limits& limits_;
  const std::vector<sandbox::Probe>& probes_;
  const CommandIo& io_;
  const ExecuteOptions& options_;
  const TakeViolations& more_;
  OuterStreams streams_;
  std::optional<sandbox::GroupCounters> before_, inside_;
  bool memory_peak_is_own_ = true;
  bool input_end_sent_ = false;
  std::optional<CommandOutcome> told_;  // the agent's outcome
  std::optional<Ending> stopped_;       // why the agent was asked to end the command
  sandbox::ViolationLog observed_;      // told by another observer than the agent
  std::vector<Notice> notices_;         // likewise
  bool agent_lost_ = false;
  OuterEnd end_;
  std::optional<sandbox::Collected> kept_;
  int64_t kill_at_ms_ = -1;  // after a signal's grace
  int64_t next_counters_ms_ = kCounterIntervalMs;
  int64_t start_ns_ = 0;
  CommandOutcome outcome_;
};

Status Execution::Start(const sandbox::Command& command) {
  agent::Execute execute;
  execute.command = command;
  execute.terminal = io_.kind == CommandIo::Kind::kTerminal;
  execute.has_input = streams_.wants_input();
  struct winsize size {};
  if (execute.terminal && ::ioctl(io_.stdin_fd, TIOCGWINSZ, &size) == 0) {
    execute.rows = size.ws_row;
    execute.columns = size.ws_col;
  }
  execute.timeout_ms = options_.timeout_ms;
  execute.timeout_name = options_.timeout_name;
  CAISSON_TRY(before_, agent_.container().ReadCounters());
  // What happened before is not the command's.
  for (bool done = !more_; !done;) {
    CAISSON_TRY(const std::vector<Violation> earlier, more_());
    done = earlier.empty();
  }
  if (before_ && before_->peak_memory_bytes) memory_peak_is_own_ = agent_.container().RestartMemoryPeak();
  start_ns_ = MonotonicNanos();
  return agent_.Send(Kind::kExecute, agent::Encode(execute));
}

Result<Executed> Execution::Run(const sandbox::Command& command) {
  CAISSON_TRY_VOID(Start(command));
  while (!told_ && !agent_lost_) {
    CAISSON_TRY_VOID(Turn());
    CAISSON_TRY_VOID(CheckLimits());
  }
  return Finish();
}

int Execution::NextTimeout() const {
  int64_t next = std::min(EndMs(), next_counters_ms_);
  if (kill_at_ms_ >= 0) next = std::min(next, kill_at_ms_);
  return static_cast<int>(std::clamp<int64_t>(next - ElapsedMs(), 0, 1'000'000)) + 1;
}

Status Execution::Turn() {
  const bool reads = !streams_.is_full();
  const bool wants_input = streams_.wants_input() && agent_.pending_bytes() < kMaxPendingInput;
  struct pollfd waits[] = {
      {reads ? agent_.container().input() : -1, POLLIN, 0},
      {agent_.has_pending() ? agent_.container().output() : -1, POLLOUT, 0},
      {options_.stop != nullptr ? options_.stop->fd() : -1, POLLIN, 0},
      {wants_input ? streams_.input_source() : -1, POLLIN, 0},
      {streams_.output_sink(), POLLOUT, 0},
      {streams_.error_sink(), POLLOUT, 0},
      {agent_.container().attention(), POLLIN, 0},
  };
  const bool known_input = wants_input && streams_.input_source() < 0;
  if (::poll(waits, std::size(waits), known_input ? 0 : NextTimeout()) < 0 && errno != EINTR)
    return Error::System(errno, "wait for the command");
  if (waits[1].revents != 0) CAISSON_TRY_VOID(agent_.Flush());
  if (waits[2].revents != 0) CAISSON_TRY_VOID(OnStop());
  if (known_input || waits[3].revents != 0 || (!streams_.wants_input() && !input_end_sent_))
    CAISSON_TRY_VOID(PassInput());
  if ((waits[4].revents | waits[5].revents) != 0) streams_.Write(false);
  if (waits[6].revents != 0) CAISSON_TRY_VOID(TakeMore());
  if (waits[0].revents != 0) CAISSON_TRY_VOID(TakeFrames());
  return {};
}

Status Execution::TakeFrames() {
  CAISSON_TRY_VOID(agent_.Fill());
  while (!told_) {
    CAISSON_TRY(const std::optional<Frame> frame, agent_.Next());
    if (!frame) break;
    CAISSON_TRY_VOID(OnFrame(*frame));
  }
  if (agent_.is_over() && !told_) agent_lost_ = true;
  return {};
}

Status Execution::OnFrame(const Frame& frame) {
  if (frame.kind == Kind::kOutput) {
    CAISSON_TRY(const agent::Output output, agent::DecodeOutput(frame.body));
    streams_.Take(output.stream, output.bytes);
    return {};
  }
  if (frame.kind == Kind::kViolation) {
    CAISSON_TRY(Violation violation, agent::DecodeViolation(frame.body));
    violation.source = EvidenceSource::kInside;
    // What is also known outside is told from there, at the end.
    const bool known_outside = violation.violation_class == ViolationClass::kTimeout ||
                               violation.violation_class == ViolationClass::kOutputLimit;
    if (!known_outside) Tell(violation);
    return {};
  }
  if (frame.kind != Kind::kOutcome) return Error::Invalid("the agent sent an answer to something else");
  CAISSON_TRY(agent::Outcome outcome, agent::DecodeOutcome(frame.body));
  told_ = std::move(outcome.outcome);
  inside_ = outcome.counters;
  return {};
}

Status Execution::PassInput() {
  while (streams_.wants_input() && agent_.pending_bytes() < kMaxPendingInput) {
    const std::string bytes = streams_.ReadInput(agent::kPieceBytes);
    if (bytes.empty() && streams_.wants_input()) return {};
    if (!bytes.empty()) CAISSON_TRY_VOID(agent_.Send(Kind::kInput, bytes));
  }
  if (streams_.wants_input() || input_end_sent_) return {};
  input_end_sent_ = true;
  return agent_.Send(Kind::kInputEnd, std::string());
}

Status Execution::OnStop() {
  const std::optional<StopRequest> request = options_.stop->Take();
  if (!request || request->signal == SIGCHLD) return {};
  const int signal = request->signal;
  if (signal == 0) return Stop(Ending::kCancelled);
  if (signal == SIGWINCH) {
    struct winsize size {};
    if (::ioctl(io_.stdin_fd, TIOCGWINSZ, &size) != 0) return {};
    return agent_.Send(Kind::kResize, agent::Encode(agent::Resize{size.ws_row, size.ws_col}));
  }
  const bool deadly = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  if (deadly && (options_.signal_grace_ms == 0 || kill_at_ms_ >= 0)) return Stop(Ending::kCancelled);
  if (deadly) kill_at_ms_ = ElapsedMs() + options_.signal_grace_ms;
  return agent_.Send(Kind::kSignal, agent::EncodeNumber(signal));
}

Status Execution::Stop(Ending ending) {
  if (stopped_) return {};
  stopped_ = ending;
  kill_at_ms_ = -1;
  return agent_.Send(Kind::kStop, agent::EncodeNumber(static_cast<int64_t>(ending)));
}

Status Execution::CheckLimits() {
  const int64_t now = ElapsedMs();
  if (kill_at_ms_ >= 0 && now >= kill_at_ms_) CAISSON_TRY_VOID(Stop(Ending::kCancelled));
  if (streams_.total_bytes() > static_cast<uint64_t>(limits_.output_bytes))
    CAISSON_TRY_VOID(Stop(Ending::kOutputLimit));
  if (now >= next_counters_ms_) CAISSON_TRY_VOID(ReadCounters());
  if (!told_ && now >= EndMs()) {
    // The agent had its time; the clock outside decides.
    agent_.container().Kill();
    if (!stopped_) stopped_ = Ending::kTimeout;
    agent_lost_ = true;
  }
  return {};
}

Status Execution::ReadCounters() {
  const int64_t now = ElapsedMs();
  next_counters_ms_ = now + std::clamp(now / 10, kCounterIntervalMs, kLongestCounterIntervalMs);
  CAISSON_TRY_VOID(TakeMore());
  if (!before_) return {};
  CAISSON_TRY(const std::optional<sandbox::GroupCounters> current, agent_.container().ReadCounters());
  if (!current) return {};
  if (current->oom_kills > before_->oom_kills) return Stop(Ending::kMemoryLimit);
  if (current->refused_forks - before_->refused_forks > kToleratedRefusedForks) return Stop(Ending::kProcessLimit);
  if (limits_.cpu_time_ms > 0 && current->cpu_ms && before_->cpu_ms &&
      *current->cpu_ms - *before_->cpu_ms > limits_.cpu_time_ms)
    return Stop(Ending::kTimeout);
  return {};
}

Status Execution::TakeMore() {
  for (bool done = !more_; !done;) {
    CAISSON_TRY(std::vector<Violation> more, more_());
    done = more.empty();
    for (Violation& violation : more) {
      violation.time_ms = ElapsedMs();
      if (const sandbox::Probe* probe = sandbox::FindProbe(probes_, violation)) {
        sandbox::AddNotice(notices_, *probe, std::move(violation));
        continue;
      }
      const bool deadly = IsDeadly(violation);
      if (observed_.Add(violation, deadly && !stopped_)) Tell(violation);
      if (deadly && !told_ && !agent_lost_) CAISSON_TRY_VOID(Stop(Ending::kSyscall));
    }
  }
  return {};
}

Result<Executed> Execution::Finish() {
  if (told_) {
    outcome_ = *std::move(told_);
    for (Violation& violation : outcome_.violations) violation.source = EvidenceSource::kInside;
  }
  outcome_.duration_ms = ElapsedMs();
  CAISSON_TRY_VOID(TakeMore());
  bool deadly = false;
  std::vector<Violation>& violations = outcome_.violations;
  for (Violation& violation : observed_.Take()) {
    if (IsDeadly(violation)) deadly = true;
    violations.push_back(std::move(violation));
  }
  std::stable_sort(violations.begin(), violations.end(),
                   [](const Violation& a, const Violation& b) { return a.time_ms < b.time_ms; });
  for (Notice& notice : notices_) outcome_.notices.push_back(std::move(notice));
  if (agent_lost_) {
    agent_.container().Kill();
    Result<OuterEnd> end = agent_.container().ReadEnd();
    if (!end && !stopped_) return std::move(end).error();
    if (end) end_ = *std::move(end);
    outcome_.ending = stopped_.value_or(Ending::kLost);
    outcome_.exit_code = 128 + SIGKILL;
    outcome_.signal = SIGKILL;
  } else if (stopped_ && outcome_.ending == *stopped_) {
    outcome_.exit_code = 128 + SIGKILL;
    outcome_.signal = SIGKILL;
  }
  // Seen too late to end it: it must not look like a command that ended by itself.
  if (deadly && (outcome_.ending == Ending::kExited || outcome_.ending == Ending::kSignaled))
    outcome_.ending = Ending::kSyscall;
  if (outcome_.ending == Ending::kSyscall) {
    outcome_.exit_code = 128 + SIGSYS;
    outcome_.signal = SIGKILL;
  }
  if (!before_ && !agent_lost_ && inside_ && inside_->oom_kills > 0) CAISSON_TRY_VOID(ConfirmMemoryLimit());
  CAISSON_TRY_VOID(JudgeCounters());
  JudgeTime();
  JudgeOutput();
  streams_.Write(true);
  outcome_.stdout_stream = streams_.TakeOutput();
  outcome_.stderr_stream = streams_.TakeError();
  outcome_.usage.output_bytes = static_cast<int64_t>(streams_.total_bytes());
  Executed executed;
  executed.agent_lost = agent_lost_;
  const Ending ending = outcome_.ending;
  executed.run_ended =
      agent_lost_ || (ending != Ending::kExited && ending != Ending::kSignaled && ending != Ending::kNotExecutable);
  executed.outcome = std::move(outcome_);
  executed.kept = std::move(kept_);
  return executed;
}

// The agent tells that memory ran out, and the counters cannot be read from outside. The walls outside tell the same
// when the container has ended, which the run has to after such a command anyway; its files are read before.
Status Execution::ConfirmMemoryLimit() {
  CAISSON_TRY_VOID(
      agent_.Send(Kind::kCollect, agent::Encode(std::vector<std::string>{"/scratch/**", "/workspace/**"})));
  CAISSON_TRY(const Frame frame, agent_.Await(Kind::kCollected, kKeepFilesMs));
  CAISSON_TRY(kept_, agent::DecodeCollected(frame.body));
  agent_.container().Kill();
  CAISSON_TRY(end_, agent_.container().ReadEnd());
  return {};
}

// The clock outside started before the agent's, so it has passed every limit that the agent's has.
void Execution::JudgeTime() {
  if (outcome_.ending != Ending::kTimeout) return Forget(ViolationClass::kTimeout);
  if (outcome_.duration_ms < options_.timeout_ms) return;  // by its CPU time
  Forget(ViolationClass::kTimeout);
  AddLimit(ViolationClass::kTimeout, options_.timeout_name, options_.timeout_ms, {{"elapsed_ms", outcome_.duration_ms}},
           EvidenceSource::kOutside);
}

void Execution::JudgeOutput() {
  Forget(ViolationClass::kOutputLimit);
  const auto written = static_cast<int64_t>(streams_.total_bytes());
  if (written <= limits_.output_bytes) return;
  if (outcome_.ending == Ending::kExited || outcome_.ending == Ending::kSignaled)
    outcome_.ending = Ending::kOutputLimit;
  AddLimit(ViolationClass::kOutputLimit, "limit.output", limits_.output_bytes, {{"bytes_written", written}},
           EvidenceSource::kOutside);
}

Status Execution::JudgeCounters() {
  Result<std::optional<sandbox::GroupCounters>> read = agent_.container().ReadCounters();
  EvidenceSource source = EvidenceSource::kOutside;
  std::optional<sandbox::GroupCounters> after;
  if (read) {
    after = *read;
  } else if (!agent_lost_) {
    return std::move(read).error();
  }
  if (!after && inside_) {
    after = inside_;
    if (!before_) before_.emplace();
    source = EvidenceSource::kInside;
  }
  if (end_.memory_limit) {
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes, end_.evidence, EvidenceSource::kOutside);
    if (!stopped_) outcome_.ending = Ending::kMemoryLimit;
    outcome_.signal = SIGKILL;
    outcome_.exit_code = 128 + SIGKILL;
  }
  if (!after || !before_) return {};
  const bool clean = outcome_.ending == Ending::kExited && outcome_.exit_code == 0 && !outcome_.left_processes;
  if (after->cpu_ms && before_->cpu_ms) outcome_.usage.cpu_ms = *after->cpu_ms - *before_->cpu_ms;
  if (after->throttled_ms && before_->throttled_ms)
    outcome_.usage.throttled_ms = *after->throttled_ms - *before_->throttled_ms;
  if (memory_peak_is_own_ || after->peak_memory_bytes > before_->peak_memory_bytes)
    outcome_.usage.peak_memory_bytes = after->peak_memory_bytes;
  if (after->peak_processes && after->peak_processes > before_->peak_processes.value_or(0))
    outcome_.usage.processes_peak = std::max<int64_t>(*after->peak_processes - 1, 0);  // the agent is ours
  if (after->oom_kills > before_->oom_kills && !end_.memory_limit) {
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes,
             {{"oom_kill_before", before_->oom_kills}, {"oom_kill_after", after->oom_kills}}, source);
    if (agent_lost_ || outcome_.ending == Ending::kExited || outcome_.ending == Ending::kSignaled)
      outcome_.ending = Ending::kMemoryLimit;
    outcome_.signal = SIGKILL;
    outcome_.exit_code = 128 + SIGKILL;
  }
  if (after->refused_forks > before_->refused_forks && !clean) {
    AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes,
             {{"refused_forks_before", before_->refused_forks}, {"refused_forks_after", after->refused_forks}}, source);
  }
  if (outcome_.ending == Ending::kMemoryLimit && !Has(ViolationClass::kMemoryLimit))
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes, {}, source);
  if (outcome_.ending == Ending::kProcessLimit && !Has(ViolationClass::kProcessLimit))
    AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes, {}, source);
  const int64_t cpu = outcome_.usage.cpu_ms.value_or(0);
  if (limits_.cpu_time_ms > 0 && cpu > limits_.cpu_time_ms &&
      (outcome_.ending == Ending::kExited || outcome_.ending == Ending::kSignaled ||
       (outcome_.ending == Ending::kTimeout && outcome_.duration_ms < options_.timeout_ms))) {
    outcome_.ending = Ending::kTimeout;
    Forget(ViolationClass::kTimeout);
    AddLimit(ViolationClass::kTimeout, "cpu_time_ms", limits_.cpu_time_ms, {{"cpu_ms", cpu}}, source);
  }
  return {};
}

void Execution::AddLimit(ViolationClass violation_class, const std::string& reason, int64_t limit,
                         std::vector<std::pair<std::string, EvidenceValue>> evidence, EvidenceSource source) {
  Violation violation;
  violation.violation_class = violation_class;
  violation.reason = reason;
  violation.time_ms = outcome_.duration_ms;
  violation.limit = limit;
  violation.evidence = std::move(evidence);
  violation.source = source;
  Tell(violation);
  outcome_.violations.push_back(std::move(violation));
}

void Execution::Forget(ViolationClass violation_class) {
  std::vector<Violation>& list = outcome_.violations;
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](const Violation& violation) { return violation.violation_class == violation_class; }),
             list.end());
}

bool Execution::Has(ViolationClass violation_class) const {
  return std::any_of(outcome_.violations.begin(), outcome_.violations.end(),
                     [&](const Violation& violation) { return violation.violation_class == violation_class; });
}

}  // namespace

Result<Executed> ExecuteWitnessed(Conversation& agent, const sandbox::Spec& spec, const sandbox::Command& command,
                                  const CommandIo& io, const ExecuteOptions& options, const TakeViolations& more) {
  return Execution(agent, spec, io, options, more).Run(command);
}

}  // namespace caisson::runtime::witnessed
