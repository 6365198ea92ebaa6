#include "agent/witness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "agent/workload.h"
#include "base/clock.h"
#include "sandbox/dns.h"
#include "sandbox/probes.h"
#include "sandbox/streams.h"
#include "sandbox/violation_log.h"

namespace caisson::agent {

namespace {

constexpr int64_t kLookIntervalMs = 100;
constexpr int64_t kTreeIntervalMs = 20;  // where the agent alone watches limits
constexpr size_t kMaxPendingInput = size_t{256} << 10;

int64_t CpuMicroseconds(const struct rusage& usage) {
  return (int64_t{usage.ru_utime.tv_sec} + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

class Witness {
 public:
  Witness(Place& place, Channel& channel, const Execute& execute)
      : place_(place), channel_(channel), execute_(execute), limits_(place.plan.spec.limits) {}

  Result<Outcome> Run();

 private:
  Status Start();
  void Await();
  int NextTimeout() const;
  void OnNotification();
  void ServeNames();
  std::vector<uint8_t> AnswerQuery(std::span<const uint8_t> query);
  void TakeFrames();
  void OnFrame(const Frame& frame);
  void PassInput();
  bool PassOutput(OutputStream stream, UniqueFd& source);
  void Reap();
  void KillAll();
  void CheckScratch();
  void CheckWatched();
  void JudgeWatched();
  void CheckTree();
  void EndBy(Ending ending, bool by_clock = true);
  void Add(Violation violation, bool ended_command = false);
  void AddLimit(ViolationClass violation_class, const char* reason, int64_t limit,
                std::vector<std::pair<std::string, EvidenceValue>> evidence);
  void FindUnseen();
  void Finish();
  int64_t ElapsedMs() const { return (MonotonicNanos() - start_ns_) / 1'000'000; }

  Place& place_;
  Channel& channel_;
  const Execute& execute_;
  const sandbox::Limits& limits_;
  sandbox::StreamEnds ends_;
  StartedWorkload workload_;
  std::optional<sandbox::Observer> observer_;
  int listener_fd_ = -1;
  std::string input_;  // not yet taken by the command
  bool input_ended_ = false;
  uint64_t output_bytes_ = 0;
  CommandOutcome outcome_;
  sandbox::ViolationLog violations_;
  int64_t start_ns_ = 0;
  int64_t cpu_us_ = 0;
  int64_t next_look_ms_ = 0;
  int64_t scratch_bytes_ = 0;
  std::optional<sandbox::GroupCounters> group_before_;
  int64_t tree_cpu_before_ms_ = 0, tree_cpu_ms_ = 0, peak_tasks_ = 0;
  bool scratch_full_ = false;
  bool ended_ = false;   // the main process is gone
  bool killed_ = false;  // the witness ended the command
  bool lost_ = false;    // the runtime outside is gone
};

Status Witness::Start() {
  CommandIo io;
  io.kind = execute_.terminal ? CommandIo::Kind::kTerminal : CommandIo::Kind::kCapture;
  if (execute_.has_input) io.input = "";
  CAISSON_TRY(ends_, sandbox::OpenStreams(io, place_.root.get(), std::nullopt));
  if (ends_.terminal) {
    const struct winsize size { execute_.rows, execute_.columns, 0, 0 };
    ::ioctl(ends_.terminal.get(), TIOCSWINSZ, &size);
  }
  const WorkloadWalls walls{place_.plan.observe, place_.plan.commands_become_user};
  CAISSON_TRY(workload_, StartWorkload(place_.context, execute_.command, ends_.workload, walls));
  if (!place_.plan.observe) return {};
  sandbox::Observer::Options options;
  const sandbox::Spec& spec = place_.plan.spec;
  static_cast<sandbox::WriteRules&>(options) = WriteRulesOf(place_.plan);
  options.scratch_bytes = spec.limits.scratch_bytes;
  UniqueFd root(::fcntl(place_.root.get(), F_DUPFD_CLOEXEC, 3));
  if (!root) return Error::System(errno, "copy a descriptor");
  listener_fd_ = workload_.listener.get();
  observer_.emplace(std::move(workload_.listener), std::move(root), *spec.seccomp, std::move(options));
  return {};
}

Result<Outcome> Witness::Run() {
  group_before_ = place_.group.Read();
  if (place_.meter) tree_cpu_before_ms_ = tree_cpu_ms_ = place_.meter->Measure().cpu_ms;
  start_ns_ = MonotonicNanos();
  if (place_.watch) place_.watch->Begin();
  if (Status started = Start(); !started) {
    KillAll();
    return std::move(started).error();
  }
  TakeFrames();  // that arrived together with the command
  while (!ended_ && !killed_ && !lost_) {
    Await();
    if (ElapsedMs() >= execute_.timeout_ms) EndBy(Ending::kTimeout);
    if (ElapsedMs() >= next_look_ms_) {
      CheckScratch();
      CheckTree();
    }
    if (place_.watch) CheckWatched();
    if (output_bytes_ > static_cast<uint64_t>(limits_.output_bytes)) EndBy(Ending::kOutputLimit);
  }
  if (lost_) return Error::System(ECONNRESET, "the runtime outside is gone");
  // Processes that the command left count, too. They are killed next.
  if (place_.watch && !killed_) place_.watch->Sample(ElapsedMs(), scratch_bytes_);
  Finish();
  Outcome outcome;
  outcome.outcome = std::move(outcome_);
  outcome.counters = place_.group.ReadSince(group_before_);
  return outcome;
}

int Witness::NextTimeout() const {
  int64_t next = std::min(execute_.timeout_ms, next_look_ms_);
  if (place_.watch) next = std::min(next, place_.watch->next_sample_ms());
  next -= ElapsedMs();
  return static_cast<int>(std::clamp<int64_t>(next, 0, 1'000'000)) + 1;
}

void Witness::Await() {
  const bool wants_output = !channel_.is_full();
  const int output = ends_.terminal ? ends_.terminal.get() : ends_.output.get();
  const int sink = ends_.terminal ? ends_.terminal.get() : ends_.input.get();
  enum : size_t { kListener, kNames, kChannel, kChannelOut, kChildren, kOutput, kError, kInput, kCount };
  struct pollfd waits[kCount] = {
      {listener_fd_, POLLIN, 0},
      {place_.names ? place_.names->fd() : -1, POLLIN, 0},
      {input_.size() < kMaxPendingInput ? channel_.input() : -1, POLLIN, 0},
      {channel_.has_pending() ? channel_.output() : -1, POLLOUT, 0},
      {place_.children_fd, POLLIN, 0},
      {wants_output ? output : -1, POLLIN, 0},
      {wants_output ? ends_.error.get() : -1, POLLIN, 0},
      {!input_.empty() ? sink : -1, POLLOUT, 0},
  };
  if (::poll(waits, kCount, NextTimeout()) <= 0) return;
  if ((waits[kListener].revents & POLLIN) != 0) {
    OnNotification();
  } else if (waits[kListener].revents != 0) {
    listener_fd_ = -1;  // the filter applies to no living process
  }
  if (waits[kNames].revents != 0) ServeNames();
  if (waits[kChannelOut].revents != 0 && !channel_.Flush()) lost_ = true;
  if (waits[kChannel].revents != 0) {
    if (!channel_.Fill()) lost_ = true;
    TakeFrames();
  }
  if (waits[kOutput].revents != 0) PassOutput(OutputStream::kStdout, ends_.terminal ? ends_.terminal : ends_.output);
  if (waits[kError].revents != 0) PassOutput(OutputStream::kStderr, ends_.error);
  if (waits[kInput].revents != 0) PassInput();
  if (waits[kChildren].revents != 0) Reap();
}

void Witness::OnNotification() {
  CheckScratch();  // before a file that filled it is removed
  sandbox::Observer::Seen seen = observer_->HandleOne([this] {
    if (place_.watch) place_.watch->BeforeThread(ElapsedMs());
  });
  if (seen.violation) {
    seen.violation->time_ms = ElapsedMs();
    Add(*std::move(seen.violation), seen.kill);
  }
  if (seen.kill) EndBy(Ending::kSyscall);
}

void Witness::ServeNames() {
  place_.names->Serve([this](auto query) { return AnswerQuery(query); });
}

std::vector<uint8_t> Witness::AnswerQuery(std::span<const uint8_t> query) {
  if (auto answer = sandbox::AnswerLocally(query, place_.plan.spec.hostname)) return *std::move(answer);
  const auto question = sandbox::ParseDnsQuery(query);
  Violation violation;
  violation.violation_class = ViolationClass::kNetworkAccess;
  violation.reason = "net.dns";
  violation.time_ms = ElapsedMs();
  violation.suggestion = "the sandbox has no network; names other than localhost do not resolve";
  if (question) {
    violation.evidence.emplace_back("name", question->name);
    violation.evidence.emplace_back("record_type", int64_t{question->type});
  } else {
    violation.evidence.emplace_back("malformed_query_bytes", static_cast<int64_t>(query.size()));
  }
  Add(std::move(violation));
  return question ? sandbox::MakeNoSuchName(query) : std::vector<uint8_t>();
}

void Witness::TakeFrames() {
  for (;;) {
    Result<std::optional<Frame>> frame = channel_.Next();
    if (!frame) lost_ = true;
    if (!frame || !*frame) return;
    OnFrame(**frame);
  }
}

void Witness::OnFrame(const Frame& frame) {
  switch (frame.kind) {
    case Kind::kInput:
      if (!input_ended_) input_ += frame.body;
      return PassInput();
    case Kind::kInputEnd:
      input_ended_ = true;
      return PassInput();
    case Kind::kSignal:
      // Only to the main process: the command can signal its other processes itself.
      if (const Result<int64_t> signal = DecodeNumber(frame.body); signal && *signal > 0 && *signal < NSIG && !ended_)
        ::kill(workload_.pid, static_cast<int>(*signal));
      return;
    case Kind::kResize:
      if (const Result<Resize> size = DecodeResize(frame.body); size && ends_.terminal) {
        const struct winsize window { size->rows, size->columns, 0, 0 };
        ::ioctl(ends_.terminal.get(), TIOCSWINSZ, &window);
      }
      return;
    case Kind::kStop: {
      const Result<int64_t> ending = DecodeNumber(frame.body);
      const bool known = ending && *ending <= static_cast<int64_t>(Ending::kLost);
      return EndBy(known ? static_cast<Ending>(*ending) : Ending::kCancelled);
    }
    default:
      lost_ = true;  // not the runtime that started us
  }
}

void Witness::PassInput() {
  UniqueFd& sink = ends_.terminal ? ends_.terminal : ends_.input;
  while (!input_.empty() && sink) {
    const ssize_t size = ::write(sink.get(), input_.data(), input_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) {
      input_.clear();  // the command closed it
      break;
    }
    input_.erase(0, static_cast<size_t>(size));
  }
  if (!sink) input_.clear();
  if (input_ended_ && input_.empty() && !ends_.terminal) ends_.input.Reset();
}

// False when there is nothing more for now.
bool Witness::PassOutput(OutputStream stream, UniqueFd& source) {
  char chunk[kPieceBytes];
  const ssize_t size = source ? ::read(source.get(), chunk, sizeof(chunk)) : 0;
  if (size <= 0) {
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (source.get() == ends_.terminal.get()) return false;  // EIO: no process has the other side open just now
    source.Reset();
    return false;
  }
  output_bytes_ += static_cast<uint64_t>(size);
  channel_.Send(Kind::kOutput, Encode(Output{stream, {chunk, static_cast<size_t>(size)}}));
  return true;
}

void Witness::Reap() {
  struct signalfd_siginfo ignored[16];
  while (::read(place_.children_fd, ignored, sizeof(ignored)) > 0) {
  }
  int status = 0;
  struct rusage usage {};
  for (pid_t pid; (pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0;) {
    cpu_us_ += CpuMicroseconds(usage);
    if (pid != workload_.pid) continue;
    ended_ = true;
    if (WIFSIGNALED(status)) {
      outcome_.ending = Ending::kSignaled;
      outcome_.signal = WTERMSIG(status);
      outcome_.exit_code = 128 + outcome_.signal;
    } else {
      outcome_.exit_code = WEXITSTATUS(status);
    }
  }
  if (!ended_) return;
  if (const int error = TakeExecFailure(workload_); error != 0) {
    outcome_.ending = Ending::kNotExecutable;
    outcome_.exec_errno = error;
  }
  outcome_.left_processes = ::kill(-1, 0) == 0;
}

// PID 1's kill(-1) reaches all other processes of the namespace under one lock: a process that is forking right now is
// either in the list or sees its pending signal and does not fork.
void Witness::KillAll() {
  ::kill(-1, SIGKILL);
  struct rusage usage {};
  for (pid_t pid; (pid = ::wait4(-1, nullptr, 0, &usage)) > 0 || errno == EINTR;) {
    if (pid > 0) cpu_us_ += CpuMicroseconds(usage);
  }
}

void Witness::CheckScratch() {
  next_look_ms_ = ElapsedMs() + kLookIntervalMs;
  int64_t used = 0, used_inodes = 0;
  for (const UniqueFd& area : place_.areas) {
    struct statfs info {};
    if (::fstatfs(area.get(), &info) != 0) continue;
    const int64_t area_used = static_cast<int64_t>(info.f_blocks - info.f_bfree) * info.f_bsize;
    used += area_used;
    used_inodes += static_cast<int64_t>(info.f_files - info.f_ffree);
    if (scratch_full_ || info.f_blocks == 0 || (info.f_bfree != 0 && info.f_ffree != 0)) continue;
    scratch_full_ = true;
    AddLimit(ViolationClass::kFilesystemWrite, "scratch_limit",
             info.f_bfree == 0 ? limits_.scratch_bytes : limits_.scratch_inodes,
             {{"free_bytes", static_cast<int64_t>(info.f_bfree) * info.f_bsize},
              {"free_inodes", static_cast<int64_t>(info.f_ffree)},
              {"used_bytes", area_used}});
  }
  scratch_bytes_ = used;
  // A pod's file systems have no limit of their own for the number of files.
  if (place_.meter && !scratch_full_ && used_inodes > limits_.scratch_inodes) {
    scratch_full_ = true;
    AddLimit(ViolationClass::kFilesystemWrite, "scratch_limit", limits_.scratch_inodes, {{"used_inodes", used_inodes}});
  }
  outcome_.usage.scratch_bytes = std::max(outcome_.usage.scratch_bytes.value_or(0), used);
}

void Witness::CheckWatched() {
  LimitWatch& watch = *place_.watch;
  if (!ended_ && ElapsedMs() >= watch.next_sample_ms()) {
    CheckScratch();
    watch.Sample(ElapsedMs(), scratch_bytes_);
  }
  if (!watch.passed() || killed_ || ended_) return;
  killed_ = true;
  outcome_.ending = watch.passed()->ending;
  if (outcome_.ending == Ending::kMemoryLimit)
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes, watch.passed()->evidence);
  else if (outcome_.ending == Ending::kTimeout)
    AddLimit(ViolationClass::kTimeout, "cpu_time_ms", limits_.cpu_time_ms, watch.passed()->evidence);
}

// A command that exceeded its limit and ended between two looks still fails by that limit.
void Witness::JudgeWatched() {
  const LimitWatch& watch = *place_.watch;
  if (watch.most_bytes() > 0) outcome_.usage.peak_memory_bytes = watch.most_bytes();  // else it was too short
  if (watch.most_tasks() > 0) outcome_.usage.processes_peak = watch.most_tasks();
  const bool clean = outcome_.ending == Ending::kExited && outcome_.exit_code == 0 && !outcome_.left_processes;
  if (outcome_.ending == Ending::kProcessLimit || (watch.was_above_process_limit() && !clean))
    AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes, {{"measured_tasks", watch.most_tasks()}});
  const int64_t cpu_ms = cpu_us_ / 1000;
  if (limits_.cpu_time_ms == 0 || cpu_ms <= limits_.cpu_time_ms) return;
  if (outcome_.ending != Ending::kExited && outcome_.ending != Ending::kSignaled) return;
  outcome_.ending = Ending::kTimeout;
  AddLimit(ViolationClass::kTimeout, "cpu_time_ms", limits_.cpu_time_ms, {{"cpu_ms", cpu_ms}});
}

// Measures the command's processes where no cgroup of the plan's own limits them.
void Witness::CheckTree() {
  if (!place_.meter) return;
  next_look_ms_ = ElapsedMs() + kTreeIntervalMs;
  const sandbox::TreeMeasure measure = place_.meter->Measure();
  tree_cpu_ms_ = std::max(tree_cpu_ms_, measure.cpu_ms);
  int64_t tasks = measure.tasks;
  if (tasks > limits_.processes) tasks = place_.meter->TasksAtOnce();
  peak_tasks_ = std::max(peak_tasks_, tasks);
  if (killed_ || ended_) return;
  if (tasks > limits_.processes) {
    EndBy(Ending::kProcessLimit);
    AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes, {{"measured_tasks", tasks}});
  }
  const int64_t cpu = tree_cpu_ms_ - tree_cpu_before_ms_;
  if (limits_.cpu_time_ms > 0 && cpu > limits_.cpu_time_ms && !killed_) {
    EndBy(Ending::kTimeout, false);
    AddLimit(ViolationClass::kTimeout, "cpu_time_ms", limits_.cpu_time_ms, {{"cpu_ms", cpu}});
  }
}

void Witness::EndBy(Ending ending, bool by_clock) {
  if (killed_ || ended_) return;
  killed_ = true;
  outcome_.ending = ending;
  if (ending == Ending::kTimeout && by_clock) {
    AddLimit(ViolationClass::kTimeout, execute_.timeout_name.c_str(), execute_.timeout_ms,
             {{"elapsed_ms", ElapsedMs()}});
  }
}

void Witness::Add(Violation violation, bool ended_command) {
  violation.source = EvidenceSource::kInside;
  if (const sandbox::Probe* probe = sandbox::FindProbe(place_.plan.spec.probes, violation))
    return sandbox::AddNotice(outcome_.notices, *probe, std::move(violation));
  if (violations_.Add(violation, ended_command)) channel_.Send(Kind::kViolation, Encode(violation));
}

void Witness::AddLimit(ViolationClass violation_class, const char* reason, int64_t limit,
                       std::vector<std::pair<std::string, EvidenceValue>> evidence) {
  Violation violation;
  violation.violation_class = violation_class;
  violation.reason = reason;
  violation.time_ms = ElapsedMs();
  violation.limit = limit;
  violation.evidence = std::move(evidence);
  Add(std::move(violation));
}

// Look-ups whose sender did not wait for the answer, and attempts that only the kernel has counted.
void Witness::FindUnseen() {
  if (place_.names) {
    place_.names->Drain([this](auto query) { return AnswerQuery(query); });
    if (const int64_t dropped = place_.names->dropped(); dropped != place_.dropped_queries) {
      place_.dropped_queries = dropped;
      Violation violation;
      violation.violation_class = ViolationClass::kNetworkAccess;
      violation.reason = dropped < 0 ? "unreadable" : "net.dns";
      violation.time_ms = outcome_.duration_ms;
      violation.evidence.emplace_back("dropped_queries", dropped);
      Add(std::move(violation));
    }
  }
  if (!observer_) return;
  if (std::optional<Violation> unseen = observer_->FindUnseenPeers()) {
    unseen->time_ms = outcome_.duration_ms;
    Add(*std::move(unseen));
  }
}

void Witness::Finish() {
  outcome_.duration_ms = ElapsedMs();
  CheckScratch();
  KillAll();
  FindUnseen();
  // Every writer is dead: the pipes hold all remaining output.
  UniqueFd& output = ends_.terminal ? ends_.terminal : ends_.output;
  while (PassOutput(OutputStream::kStdout, output)) {
  }
  while (PassOutput(OutputStream::kStderr, ends_.error)) {
  }
  if (!killed_ && output_bytes_ > static_cast<uint64_t>(limits_.output_bytes)) outcome_.ending = Ending::kOutputLimit;
  if (outcome_.ending == Ending::kOutputLimit) {
    AddLimit(ViolationClass::kOutputLimit, "limit.output", limits_.output_bytes,
             {{"bytes_written", static_cast<int64_t>(output_bytes_)}});
  }
  if (place_.watch) JudgeWatched();
  outcome_.usage.output_bytes = static_cast<int64_t>(output_bytes_);
  outcome_.usage.cpu_ms = cpu_us_ / 1000;
  if (place_.meter) outcome_.usage.processes_peak = peak_tasks_;
  if (killed_) {
    outcome_.signal = SIGKILL;
    outcome_.exit_code = outcome_.ending == Ending::kSyscall ? 128 + SIGSYS : 128 + SIGKILL;
  }
  outcome_.violations = violations_.Take();
}

}  // namespace

Result<Outcome> RunWitnessed(Place& place, Channel& channel, const Execute& execute) {
  return Witness(place, channel, execute).Run();
}

}  // namespace caisson::agent
