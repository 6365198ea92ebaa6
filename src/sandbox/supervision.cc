// Sandbox::Run: the supervisor's loop for one command.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/clock.h"
#include "linux/event_loop.h"
#include "linux/syscalls.h"
#include "sandbox/command_order.h"
#include "sandbox/control.h"
#include "sandbox/dns.h"
#include "sandbox/mutation.h"
#include "sandbox/network_record.h"
#include "sandbox/observation_budget.h"
#include "sandbox/probes.h"
#include "sandbox/sandbox.h"
#include "sandbox/socket_meter.h"
#include "sandbox/streams.h"
#include "sandbox/violation_log.h"

namespace caisson::sandbox {

namespace {

constexpr int64_t kWatchIntervalMs = 10;
constexpr int64_t kBusyWatchIntervalMs = 3;
// A program that handles a refused fork does not try this many more times.
constexpr int64_t kToleratedRefusedForks = 64;
// Where refused forks are not counted: such a program does not stay above the limit for this long either. Measured by
// the clock and not by the number of looks, which are few while a fork bomb occupies the processors.
constexpr int64_t kToleratedOverLimitMs = 1000;
// How often counters without notification are read: often in the first seconds, in which most runs end, and less often
// later, so that a thousand quiet runs do not keep a processor busy.
constexpr int64_t kCounterIntervalMs = 50;
constexpr int64_t kLongestCounterIntervalMs = 500;
// The CPU time is read no more often than this, however little of it is left.
constexpr int64_t kShortestCpuIntervalMs = 2;

enum Tag : uint32_t {
  kControl,
  kOom,
  kSignal,
  kAsker,
  kPidfd,
  kInput,
  kInputSink,
  kOutput,
  kError,
  kOutputSink,
  kErrorSink
};
constexpr Streams::Tags kStreamTags = {kInput, kInputSink, kOutput, kError, kOutputSink, kErrorSink};

}  // namespace

class Supervision {
 public:
  Supervision(Sandbox& sandbox, const CommandIo& io, StreamEnds ends, const RunOptions& options)
      : sandbox_(sandbox),
        options_(options),
        limits_(sandbox.spec_.limits),
        streams_(loop_, io, std::move(ends), kStreamTags, limits_.output_bytes) {}

  Result<CommandOutcome> Run(const Command& command);

 private:
  void Watch();
  void Await();
  void Dispatch(uint32_t tag);
  int NextTimeout() const;
  void OnControl();
  void OnNotification();
  std::vector<uint8_t> AnswerQuery(std::span<const uint8_t> query);
  int NamesFd() const { return sandbox_.egress_ ? (egress_fault_ ? -1 : sandbox_.egress_->fd()) : sandbox_.dns_->fd(); }
  void ServeNames();
  void AddNetworkEvent(const egress::control::Event& event);
  void SettleNetwork();
  void NoteDropped(int64_t dropped);
  void ChargeObservation(int64_t took_ns);
  void OnSignal();
  void OnAnswer();
  void CheckMemory();
  void CheckUncharged();
  void ReadCounters();
  void BeforeThread();
  void CheckTasks(int64_t measured, int64_t asked_for);
  void NoteTasks(int64_t tasks);
  void CheckScratch();
  void CheckClock();
  void CheckCpuTime();
  std::optional<int64_t> UsedCpuMs() const;
  void Sample();
  void EndBy(Ending ending);
  void Add(Violation violation, bool ended_command = false);
  void AddLimit(ViolationClass violation_class, const char* reason, int64_t limit,
                std::vector<std::pair<std::string, EvidenceValue>> evidence);
  Status Finish();
  void FindUnseen();
  void JudgeCounters();
  void JudgeCpuTime();
  void NameEnding();
  int64_t ElapsedMs() const { return (MonotonicNanos() - start_) / 1'000'000; }

  Sandbox& sandbox_;
  const RunOptions& options_;
  const Limits& limits_;
  linux_sys::EventLoop loop_;
  int listener_fd_ = -1;  // the observer's, while there are processes to observe
  ObservationBudget budget_{limits_.cpu_millis};
  int64_t own_cpu_before_ns_ = 0;
  int64_t hold_until_ns_ = 0;  // observed calls and look-ups wait until then
  unsigned looked_ = 0;
  Streams streams_;
  CommandOutcome outcome_;
  ViolationLog violations_;
  NetworkRecord network_;
  std::optional<Error> egress_fault_;  // the error that ended the egress process
  GroupCounters before_;
  bool memory_peak_is_own_ = true;   // the group's peak counts from this command's start
  bool process_peak_is_own_ = true;  // likewise
  int64_t tree_cpu_before_ms_ = 0;
  int64_t reported_cpu_us_ = 0;  // of all processes that PID 1 reaped
  int64_t next_cpu_ms_ = 0;
  int64_t start_ = 0;
  int64_t kill_at_ms_ = -1;  // after a signal's grace
  int64_t next_sample_ms_ = 0;
  int64_t recheck_memory_until_ms_ = -1;  // the kernel reports an OOM a moment before it counts it
  TreeMeasure peak_;
  int64_t next_counters_ms_ = kCounterIntervalMs;
  int64_t refused_forks_ = 0;         // where no cgroup counts them: threads asked for beyond the limit
  int64_t tasks_at_most_ = 0;         // if no process was forked since the measurement
  int64_t over_limit_since_ms_ = -1;  // every look since found more tasks than allowed, where no cgroup refuses them
  bool was_over_limit_ = false;
  int64_t scratch_bytes_ = 0;  // in use now
  bool scratch_full_ = false;
  bool ended_ = false;  // PID 1 has reported the command's end
  bool lost_ = false;   // PID 1 ended without a report
  bool killed_ = false;
};

void Supervision::Watch() {
  listener_fd_ = sandbox_.observer_->fd();
  loop_.Watch(sandbox_.first_.control(), EPOLLIN, kControl);
  loop_.Watch(sandbox_.first_.pidfd(), EPOLLIN, kPidfd);
  if (options_.stop != nullptr) loop_.Watch(options_.stop->fd(), EPOLLIN, kSignal);
  if (sandbox_.resources_.group) {
    const bool v1 = sandbox_.resources_.group->driver() == CgroupDriver::kHybrid;
    if (sandbox_.resources_.group->oom_event_fd() >= 0)
      loop_.Watch(sandbox_.resources_.group->oom_event_fd(), v1 ? EPOLLIN : EPOLLPRI, kOom);
    if (sandbox_.commands_begun_ != 0) {
      process_peak_is_own_ = CAISSON_LEFT_OUT("own_peaks");
      memory_peak_is_own_ = process_peak_is_own_ || sandbox_.resources_.group->RestartMemoryPeak();
      before_ = sandbox_.resources_.group->Read();
    } else {
      before_.cpu_ms = sandbox_.resources_.group->ReadCpuMs();  // of set-up; otherwise the group is new and at 0
      before_.throttled_ms = 0;
    }
  }
  if (sandbox_.meter_) tree_cpu_before_ms_ = sandbox_.meter_->Measure().cpu_ms;
  if (sandbox_.egress_ && options_.asker != nullptr) {
    loop_.Watch(options_.asker->fd(), EPOLLIN, kAsker);
    sandbox_.egress_->set_on_ask([this](const egress::control::Ask& ask) {
      options_.asker->Ask({ask.id, ask.name, ask.port, ask.protocol});
    });
  }
  streams_.Start();
}

Result<CommandOutcome> Supervision::Run(const Command& command) {
  Watch();
  start_ = MonotonicNanos();
  own_cpu_before_ns_ = ThreadCpuNanos();
  ++sandbox_.commands_begun_;
  sandbox_.is_quiet_ = false;
  CAISSON_TRY_VOID(SendCommand(sandbox_.first_.control(), command, streams_.workload(), {options_.last, 0}));
  sandbox_.ReclaimStale();  // while the workload starts: leftovers of runs killed with their cleanup process
  while (!ended_ && !lost_ && !killed_) {
    Await();
    CheckClock();
    if (ElapsedMs() >= next_counters_ms_) ReadCounters();
    if (sandbox_.meter_ && ElapsedMs() >= next_sample_ms_) Sample();
    if (limits_.cpu_time_ms > 0 && ElapsedMs() >= next_cpu_ms_) CheckCpuTime();
    if (recheck_memory_until_ms_ >= 0) CheckMemory();
    if (streams_.total_bytes() > static_cast<uint64_t>(limits_.output_bytes)) EndBy(Ending::kOutputLimit);
    if (options_.on_turn) options_.on_turn();
  }
  CAISSON_TRY_VOID(Finish());
  return std::move(outcome_);
}

// The filter's listener is polled beside the epoll and not in it: poll passes on the kernel's hint to wake the
// supervisor on the CPU of the observed call, and epoll does not. Waking another CPU takes several times as long.
void Supervision::Await() {
  const bool held = hold_until_ns_ != 0 && MonotonicNanos() < hold_until_ns_;
  struct pollfd waits[] = {
      {held ? -1 : listener_fd_, POLLIN, 0}, {held ? -1 : NamesFd(), POLLIN, 0}, {loop_.fd(), POLLIN, 0}};
  if (::poll(waits, 3, NextTimeout()) <= 0) return;
  const int64_t began_ns = MonotonicNanos();
  if ((waits[0].revents & POLLIN) != 0) {
    OnNotification();
  } else if (waits[0].revents != 0) {
    listener_fd_ = -1;  // the filter applies to no living process
  }
  if (waits[1].revents != 0) ServeNames();
  if ((waits[0].revents | waits[1].revents) != 0) ChargeObservation(MonotonicNanos() - began_ns);
  if (waits[2].revents == 0) return;
  for (const auto& event : loop_.Wait(0)) Dispatch(event.data.u32);
}

// Reading the supervisor's own CPU time costs about a tenth of observing a call, so it is read only now and then, and
// after a call that took long.
void Supervision::ChargeObservation(int64_t took_ns) {
  constexpr unsigned kCallsBetween = 16;
  constexpr int64_t kLongNs = 500'000;
  if ((++looked_ % kCallsBetween != 0 && took_ns < kLongNs) || CAISSON_LEFT_OUT("observation_budget")) return;
  budget_.Charge(MonotonicNanos(), ThreadCpuNanos());
  if (!budget_.is_empty()) return;
  budget_.ShareWith(UsedCpuMs().value_or(0) * 1'000'000);
  hold_until_ns_ = budget_.FilledAt();
}

void Supervision::Dispatch(uint32_t tag) {
  switch (tag) {
    case kControl:
      return OnControl();
    case kPidfd:
      // A report that PID 1 sent before it ended is still in the socket.
      OnControl();
      if (!ended_) lost_ = true;
      return;
    case kOom:
      recheck_memory_until_ms_ = ElapsedMs() + 500;
      return CheckMemory();
    case kSignal:
      return OnSignal();
    case kAsker:
      return OnAnswer();
    default:
      streams_.Dispatch(tag);
  }
}

int Supervision::NextTimeout() const {
  const int64_t now = ElapsedMs();
  int64_t next = std::min(options_.timeout_ms, next_counters_ms_) - now;
  if (kill_at_ms_ >= 0) next = std::min(next, kill_at_ms_ - now);
  if (sandbox_.meter_) next = std::min(next, next_sample_ms_ - now);
  if (limits_.cpu_time_ms > 0) next = std::min(next, next_cpu_ms_ - now);
  if (recheck_memory_until_ms_ >= 0) next = std::min<int64_t>(next, 1);
  if (hold_until_ns_ != 0) {
    const int64_t held_ms = (hold_until_ns_ - MonotonicNanos()) / 1'000'000;
    if (held_ms >= 0) next = std::min(next, held_ms);
  }
  return static_cast<int>(std::clamp<int64_t>(next, 0, 1'000'000) + (next > 0 && next < 1'000'000 ? 1 : 0));
}

void Supervision::OnControl() {
  Report report{};
  while (TakeReport(sandbox_.first_.control(), report, MSG_DONTWAIT)) {
    if (report.kind == Report::kExecFailed) {
      outcome_.ending = Ending::kNotExecutable;
      outcome_.exec_errno = report.error;
    } else if (report.kind == Report::kCommandEnded) {
      ended_ = sandbox_.is_quiet_ = true;
      outcome_.left_processes = report.left_processes != 0;
      reported_cpu_us_ = report.cpu_us;
      if (sandbox_.meter_) NoteTasks(int64_t{report.left_processes} + 1);  // plus the process that ended
      if (WIFSIGNALED(report.wait_status)) {
        outcome_.ending = Ending::kSignaled;
        outcome_.signal = WTERMSIG(report.wait_status);
        outcome_.exit_code = 128 + outcome_.signal;
      } else {
        outcome_.exit_code = WEXITSTATUS(report.wait_status);
      }
      return;
    }
  }
}

void Supervision::OnNotification() {
  CheckScratch();  // before a file that filled it is removed
  Observer::Seen seen = sandbox_.observer_->HandleOne([this] { BeforeThread(); });
  if (seen.violation) {
    seen.violation->time_ms = ElapsedMs();
    Add(*std::move(seen.violation), seen.kill);
  }
  if (seen.kill) EndBy(Ending::kSyscall);
}

std::vector<uint8_t> Supervision::AnswerQuery(std::span<const uint8_t> query) {
  if (auto answer = AnswerLocally(query, sandbox_.spec_.hostname)) return *std::move(answer);
  RefusedLookUp refused = RefuseLookUp(query);
  refused.violation.time_ms = ElapsedMs();
  Add(std::move(refused.violation));
  return std::move(refused.answer);
}

void Supervision::ServeNames() {
  if (!sandbox_.egress_) return sandbox_.dns_->Serve([this](auto query) { return AnswerQuery(query); });
  Status served = sandbox_.egress_->Serve([this](const auto& event) { AddNetworkEvent(event); });
  if (served) return;
  // The record would be incomplete: Finish reports the fault.
  egress_fault_ = std::move(served).error();
  killed_ = true;
}

void Supervision::AddNetworkEvent(const egress::control::Event& event) {
  std::optional<Violation> violation = network_.Add(event);
  if (!violation) return;
  violation->time_ms = ElapsedMs();
  if (event.count > 1) return violations_.Count(*violation);
  Add(*std::move(violation));
}

void Supervision::OnAnswer() {
  using Scope = NetworkAnswer::Scope;
  using egress::control::Verdict;
  const std::optional<NetworkAnswer> answer = options_.asker->Take();
  if (!answer || egress_fault_) return;
  const Verdict::Scope scope = answer->scope == Scope::kSession ? Verdict::kSession
                               : answer->scope == Scope::kOnce  ? Verdict::kOnce
                                                                : Verdict::kDeny;
  Status sent = sandbox_.egress_->Answer(answer->id, scope);
  if (sent) return;
  egress_fault_ = std::move(sent).error();
  killed_ = true;
}

void Supervision::OnSignal() {
  // Takes one request for each readiness event: a caller that sends without pause cannot keep the supervisor from its
  // clock.
  const std::optional<StopRequest> request = options_.stop->Take();
  if (!request) return;
  const int signal = request->signal;
  if (signal == 0) return EndBy(Ending::kCancelled);
  if (signal == SIGWINCH) return streams_.ResizeTerminal();
  if (signal == SIGCHLD) return;
  const bool deadly = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  // A second terminating signal, or no grace period: end the command at once.
  if (deadly && (options_.signal_grace_ms == 0 || kill_at_ms_ >= 0)) return EndBy(Ending::kCancelled);
  linux_sys::PidfdSendSignal(sandbox_.first_.pidfd(), signal);
  if (deadly) kill_at_ms_ = ElapsedMs() + options_.signal_grace_ms;
}

void Supervision::CheckClock() {
  const int64_t now = ElapsedMs();
  // A fork bomb may leave the supervisor no time for a second look; the bomb itself used up the command's time, so
  // report the process limit.
  if (now >= options_.timeout_ms) EndBy(over_limit_since_ms_ >= 0 ? Ending::kProcessLimit : Ending::kTimeout);
  if (kill_at_ms_ >= 0 && now >= kill_at_ms_) EndBy(Ending::kCancelled);
}

// CPU time since the command started; absent when it cannot be determined.
std::optional<int64_t> Supervision::UsedCpuMs() const {
  if (sandbox_.meter_) return std::max(peak_.cpu_ms - tree_cpu_before_ms_, reported_cpu_us_ / 1000);
  const std::optional<int64_t> now = sandbox_.resources_.group->ReadCpuMs();
  if (!now || !before_.cpu_ms) return std::nullopt;
  return *now - *before_.cpu_ms;
}

void Supervision::CheckCpuTime() {
  if (killed_ || ended_ || CAISSON_LEFT_OUT("cpu_time_limit")) return;
  const std::optional<int64_t> used = UsedCpuMs();
  if (!used) {
    killed_ = true;  // unmeasured usage is not within its limit; Finish reports the fault
    return;
  }
  if (*used >= limits_.cpu_time_ms) {
    killed_ = true;
    outcome_.ending = Ending::kTimeout;
    return AddLimit(ViolationClass::kTimeout, "cpu_time_ms", limits_.cpu_time_ms, {{"cpu_ms", *used}});
  }
  // The workload cannot use up the time faster than on all CPUs that it may use.
  const int64_t cpus = std::min((limits_.cpu_millis + 999) / 1000, int64_t{::sysconf(_SC_NPROCESSORS_ONLN)});
  const int64_t soonest = (limits_.cpu_time_ms - *used) / std::max<int64_t>(cpus, 1);
  next_cpu_ms_ = ElapsedMs() + std::max(soonest, kShortestCpuIntervalMs);
}

void Supervision::CheckMemory() {
  uint64_t ignored;
  while (::read(sandbox_.resources_.group->oom_event_fd(), &ignored, sizeof(ignored)) > 0 &&
         sandbox_.resources_.group->driver() == CgroupDriver::kHybrid) {
  }
  if (sandbox_.resources_.group->Read().oom_kills > before_.oom_kills) return EndBy(Ending::kMemoryLimit);
  if (ElapsedMs() > recheck_memory_until_ms_) recheck_memory_until_ms_ = -1;
}

// Memory that the kernel holds for the group without charging it to a limit of the group: data in netlink sockets, and
// on v1 in TCP and UDP sockets.
void Supervision::CheckUncharged() {
  if (CAISSON_LEFT_OUT("socket_memory")) return;
  LimitGroup& group = *sandbox_.resources_.group;
  const int64_t netlink = NetlinkQueueBytes(sandbox_.proc_.get());
  const int64_t uncharged = group.ReadSocketBytes() + std::max<int64_t>(netlink, 0);
  // PID 1, and its namespace's list with it, may be gone already; then no process is left that could hold the memory.
  if (group.FitsBeside(uncharged) || ended_ || killed_) return;
  EndBy(Ending::kMemoryLimit);
  AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes,
           {{"measured_bytes", group.ReadMemoryBytes() + uncharged}, {"socket_bytes", uncharged}});
}

void Supervision::ReadCounters() {
  const int64_t now = ElapsedMs();
  next_counters_ms_ = now + std::clamp(now / 10, kCounterIntervalMs, kLongestCounterIntervalMs);
  CheckScratch();
  if (sandbox_.resources_.group) CheckUncharged();
  if (sandbox_.resources_.group) refused_forks_ = sandbox_.resources_.group->ReadRefusedForks() - before_.refused_forks;
  if (refused_forks_ > kToleratedRefusedForks) EndBy(Ending::kProcessLimit);
}

void Supervision::BeforeThread() {
  if (++tasks_at_most_ <= limits_.processes) return;
  CheckTasks(sandbox_.meter_->Measure().tasks, 1);
  if (over_limit_since_ms_ >= 0) ++refused_forks_;
}

void Supervision::CheckTasks(int64_t measured, int64_t asked_for) {
  if (measured + asked_for > limits_.processes) measured = sandbox_.meter_->TasksAtOnce();
  NoteTasks(measured + asked_for);
}

void Supervision::NoteTasks(int64_t tasks) {
  peak_.tasks = std::max(peak_.tasks, tasks);
  tasks_at_most_ = tasks;
  if (tasks <= limits_.processes) {
    over_limit_since_ms_ = -1;
    return;
  }
  was_over_limit_ = true;
  const int64_t now = ElapsedMs();
  if (over_limit_since_ms_ < 0) over_limit_since_ms_ = now;
  if (now - over_limit_since_ms_ >= kToleratedOverLimitMs) EndBy(Ending::kProcessLimit);
}

void Supervision::CheckScratch() {
  struct statfs info {};
  if (::fstatfs(sandbox_.scratch_.get(), &info) != 0) return;
  const int64_t used = static_cast<int64_t>(info.f_blocks - info.f_bfree) * info.f_bsize;
  scratch_bytes_ = used;
  outcome_.usage.scratch_bytes = std::max(outcome_.usage.scratch_bytes.value_or(0), used);
  if (scratch_full_ || (info.f_bfree != 0 && info.f_ffree != 0)) return;
  scratch_full_ = true;
  AddLimit(ViolationClass::kFilesystemWrite, "scratch_limit",
           info.f_bfree == 0 ? limits_.scratch_bytes : limits_.scratch_inodes,
           {{"free_bytes", static_cast<int64_t>(info.f_bfree) * info.f_bsize},
            {"free_inodes", static_cast<int64_t>(info.f_ffree)},
            {"used_bytes", used}});
}

void Supervision::Sample() {
  CheckScratch();
  const TreeMeasure now = sandbox_.meter_->Measure();
  CheckTasks(now.tasks, 0);
  peak_.cpu_ms = std::max(peak_.cpu_ms, now.cpu_ms);
  // Pages of scratch count as memory, as they do where a cgroup counts them.
  const MemoryMeasure memory = sandbox_.meter_->Memory(now, scratch_bytes_, limits_.memory_bytes);
  peak_.resident_bytes = std::max(peak_.resident_bytes, memory.bytes);
  // A process that prevents its measurement may have more than the limit, and is treated so.
  if ((memory.bytes > limits_.memory_bytes || memory.unmeasured > 0) && !ended_) {
    EndBy(Ending::kMemoryLimit);
    std::vector<std::pair<std::string, EvidenceValue>> evidence = {{"measured_bytes", memory.bytes}};
    for (const auto& [name, value] :
         {std::pair{"page_table_bytes", memory.table_bytes}, std::pair{"memory_file_bytes", memory.file_bytes},
          std::pair{"segment_bytes", memory.segment_bytes}, std::pair{"socket_bytes", memory.socket_bytes},
          std::pair{"pipe_bytes", memory.pipe_bytes}, std::pair{"unmeasured_processes", memory.unmeasured}}) {
      if (value > 0) evidence.emplace_back(name, value);
    }
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes, std::move(evidence));
  }
  const bool busy = memory.bytes > limits_.memory_bytes / 2;
  next_sample_ms_ = ElapsedMs() + (busy ? kBusyWatchIntervalMs : kWatchIntervalMs);
}

void Supervision::EndBy(Ending ending) {
  if (killed_ || ended_) return;
  killed_ = true;
  outcome_.ending = ending;
  const int64_t elapsed = ElapsedMs();
  if (ending == Ending::kTimeout) {
    AddLimit(ViolationClass::kTimeout, options_.timeout_name.c_str(), options_.timeout_ms, {{"elapsed_ms", elapsed}});
  } else if (ending == Ending::kOutputLimit) {
    AddLimit(ViolationClass::kOutputLimit, "limit.output", limits_.output_bytes,
             {{"bytes_written", static_cast<int64_t>(streams_.total_bytes())}});
  }
}

// Only listed violations are reported at once: a flood of one kind costs the listeners no more than its first few.
void Supervision::Add(Violation violation, bool ended_command) {
  if (const Probe* probe = FindProbe(sandbox_.spec_.probes, violation))
    return AddNotice(outcome_.notices, *probe, std::move(violation));
  if (!options_.on_violation) {
    violations_.Add(std::move(violation), ended_command);
  } else if (violations_.Add(violation, ended_command)) {
    options_.on_violation(violation);
  }
}

void Supervision::AddLimit(ViolationClass violation_class, const char* reason, int64_t limit,
                           std::vector<std::pair<std::string, EvidenceValue>> evidence) {
  Violation violation;
  violation.violation_class = violation_class;
  violation.reason = reason;
  violation.time_ms = ElapsedMs();
  violation.limit = limit;
  violation.evidence = std::move(evidence);
  Add(std::move(violation));
}

Status Supervision::Finish() {
  outcome_.duration_ms = ElapsedMs();
  outcome_.usage.supervisor_cpu_ms = (ThreadCpuNanos() - own_cpu_before_ns_) / 1'000'000;
  CheckScratch();
  if (sandbox_.meter_ && !lost_ && !killed_) Sample();
  if (killed_ || lost_) sandbox_.Kill();
  FindUnseen();
  // Every writer is dead or is PID 1, which writes nothing: the pipes now hold all remaining output. After the last
  // command PID 1 exits, and the namespaces with it; the result does not wait for that.
  streams_.Drain();
  outcome_.stdout_stream = streams_.TakeOutput();
  outcome_.stderr_stream = streams_.TakeError();
  outcome_.usage.output_bytes = static_cast<int64_t>(streams_.total_bytes());
  if (!killed_ && streams_.total_bytes() > static_cast<uint64_t>(limits_.output_bytes)) {
    outcome_.ending = Ending::kOutputLimit;
    AddLimit(ViolationClass::kOutputLimit, "limit.output", limits_.output_bytes,
             {{"bytes_written", static_cast<int64_t>(streams_.total_bytes())}});
  }
  JudgeCounters();
  JudgeCpuTime();
  NameEnding();
  outcome_.violations = violations_.Take();
  outcome_.network = network_.Take();
  if (egress_fault_) return *std::move(egress_fault_);
  if (limits_.cpu_time_ms > 0 && !outcome_.usage.cpu_ms)
    return Error::System(EIO, "the CPU time of the command cannot be measured, and it is limited");
  if (lost_ && outcome_.ending != Ending::kMemoryLimit) {
    return Error::System(ECHILD, "PID 1 of the sandbox was killed from outside");
  }
  if (killed_ || outcome_.ending == Ending::kMemoryLimit) {
    outcome_.signal = SIGKILL;
    outcome_.exit_code = outcome_.ending == Ending::kSyscall ? 128 + SIGSYS : 128 + SIGKILL;
  }
  return {};
}

// Finds attempts that were not yet seen, now that no process is left to make new ones: look-ups whose sender did not
// wait for the answer, and attempts that only the kernel has counted.
void Supervision::FindUnseen() {
  if (CAISSON_LEFT_OUT("unwaited_look_ups") || CAISSON_LEFT_OUT("network_namespace")) return;
  if (sandbox_.egress_) {
    if (options_.asker != nullptr) {
      options_.asker->Withdraw();
      sandbox_.egress_->set_on_ask(nullptr);
    }
    SettleNetwork();
    NoteDropped(sandbox_.egress_->dropped_questions());
  } else {
    sandbox_.dns_->Drain([this](auto query) { return AnswerQuery(query); });
    NoteDropped(sandbox_.dns_->dropped());
  }
  if (std::optional<Violation> unseen = sandbox_.observer_->FindUnseenPeers()) {
    unseen->time_ms = outcome_.duration_ms;
    Add(*std::move(unseen));
  }
}

void Supervision::NoteDropped(int64_t dropped) {
  if (dropped == sandbox_.dropped_queries_) return;
  sandbox_.dropped_queries_ = dropped;
  Violation violation;
  violation.violation_class = ViolationClass::kNetworkAccess;
  violation.reason = dropped < 0 ? "unreadable" : "net.dns";
  violation.time_ms = outcome_.duration_ms;
  violation.evidence.emplace_back("dropped_queries", dropped);
  Add(std::move(violation));
}

void Supervision::SettleNetwork() {
  if (egress_fault_) return;
  Result<int64_t> untold = sandbox_.egress_->Settle([this](const auto& event) { AddNetworkEvent(event); });
  if (!untold) {
    egress_fault_ = std::move(untold).error();
  } else if (*untold > 0) {
    Violation violation;
    violation.violation_class = ViolationClass::kNetworkAccess;
    violation.reason = "net.egress";
    violation.time_ms = outcome_.duration_ms;
    violation.count = *untold;
    violation.evidence.emplace_back("unlisted_attempts", *untold);
    Add(std::move(violation));
  }
}

void Supervision::JudgeCounters() {
  const bool clean = outcome_.ending == Ending::kExited && outcome_.exit_code == 0 && !outcome_.left_processes;
  if (!sandbox_.resources_.group) {
    outcome_.usage.cpu_ms = UsedCpuMs();
    if (peak_.resident_bytes > 0) outcome_.usage.peak_memory_bytes = peak_.resident_bytes;  // else it was too short
    if (peak_.tasks > 0) outcome_.usage.processes_peak = peak_.tasks;
    if (was_over_limit_ && !clean) {
      AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes, {{"measured_tasks", peak_.tasks}});
    }
    return;
  }
  const GroupCounters after = sandbox_.resources_.group->Read();
  if (after.cpu_ms && before_.cpu_ms) outcome_.usage.cpu_ms = *after.cpu_ms - *before_.cpu_ms;
  if (after.throttled_ms && before_.throttled_ms)
    outcome_.usage.throttled_ms = *after.throttled_ms - *before_.throttled_ms;
  // A peak that was reached before this command does not count; a peak that has grown since does.
  if (memory_peak_is_own_ || after.peak_memory_bytes > before_.peak_memory_bytes)
    outcome_.usage.peak_memory_bytes = after.peak_memory_bytes;
  if (after.peak_processes && (process_peak_is_own_ || after.peak_processes > before_.peak_processes))
    outcome_.usage.processes_peak = std::max<int64_t>(*after.peak_processes - 1, 0);  // PID 1 is ours
  if (after.oom_kills > before_.oom_kills) {
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes,
             {{"oom_kill_before", before_.oom_kills}, {"oom_kill_after", after.oom_kills}});
    if (lost_ || outcome_.ending == Ending::kExited || outcome_.ending == Ending::kSignaled)
      outcome_.ending = Ending::kMemoryLimit;
  }
  if (after.refused_forks > before_.refused_forks && !clean) {
    AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes,
             {{"refused_forks_before", before_.refused_forks}, {"refused_forks_after", after.refused_forks}});
  }
}

// A command that exceeded its limit and ended between two looks still fails by that limit.
void Supervision::JudgeCpuTime() {
  const int64_t limit = limits_.cpu_time_ms, used = outcome_.usage.cpu_ms.value_or(0);
  if (limit == 0 || used <= limit || CAISSON_LEFT_OUT("cpu_time_limit")) return;
  if (outcome_.ending != Ending::kExited && outcome_.ending != Ending::kSignaled) return;
  outcome_.ending = Ending::kTimeout;
  AddLimit(ViolationClass::kTimeout, "cpu_time_ms", limit, {{"cpu_ms", used}});
}

// The supervisor ended the command, so the list says why, even where the counter behind it could not be read again.
void Supervision::NameEnding() {
  if (outcome_.ending == Ending::kMemoryLimit && !violations_.Has(ViolationClass::kMemoryLimit))
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes, {});
  if (outcome_.ending == Ending::kProcessLimit && !violations_.Has(ViolationClass::kProcessLimit))
    AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes, {});
}

Result<CommandOutcome> Sandbox::Run(const Command& command, const CommandIo& io, const RunOptions& options) {
  if (!first_.lives()) return Error::Unsupported("the sandbox has already ended");
  if (command.argv.empty() || command.argv[0].empty()) return Error::Invalid("command: the program is not named");
  if (!FitsOrder(command)) {
    CommandOutcome outcome;
    outcome.ending = Ending::kNotExecutable;
    outcome.exec_errno = E2BIG;
    return outcome;
  }
  std::optional<uid_t> owner;
  if (isolation_.own_id_range) owner = host_uid_;
  CAISSON_TRY(StreamEnds ends, OpenStreams(io, root_.get(), owner));
  return Supervision(*this, io, std::move(ends), options).Run(command);
}

}  // namespace caisson::sandbox
