// Sandbox::Run: one loop around one command.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "linux/event_loop.h"
#include "linux/syscalls.h"
#include "sandbox/control.h"
#include "sandbox/dns.h"
#include "sandbox/mutation.h"
#include "sandbox/sandbox.h"
#include "sandbox/streams.h"

namespace caisson::sandbox {

namespace {

constexpr size_t kMaxViolations = 64;
constexpr int64_t kWatchIntervalMs = 10;
constexpr int64_t kBusyWatchIntervalMs = 3;
// A program that copes with a refused fork does not ask this many more times.
constexpr int64_t kToleratedRefusedForks = 64;
// Where refused forks are not counted: nor does it stay above the limit for this long. By the clock and not by looks,
// which are few where a bomb has the processors.
constexpr int64_t kToleratedOverLimitMs = 1000;
// How often counters that give no notice are read: often in a run's first seconds, where most runs end, and a thousand
// that have long been quiet do not keep a processor busy.
constexpr int64_t kCounterIntervalMs = 50;
constexpr int64_t kLongestCounterIntervalMs = 500;

enum Tag : uint32_t {
  kControl,
  kDns,
  kOom,
  kSignal,
  kPidfd,
  kInput,
  kInputSink,
  kOutput,
  kError,
  kOutputSink,
  kErrorSink
};

}  // namespace

class Supervision {
 public:
  Supervision(Sandbox& sandbox, uint32_t command, const RunOptions& options)
      : sandbox_(sandbox),
        command_(command),
        options_(options),
        limits_(sandbox.spec_.limits),
        streams_(loop_, MakeEnds(sandbox, command, options), limits_.output_bytes) {}

  Result<CommandOutcome> Run();

 private:
  static Streams::Ends MakeEnds(Sandbox& sandbox, uint32_t command, const RunOptions& options);
  void Watch();
  void Await();
  void Dispatch(uint32_t tag);
  int NextTimeout() const;
  void OnControl();
  void OnNotification();
  void OnDns();
  void OnSignal();
  void CheckMemory();
  void ReadCounters();
  void BeforeThread();
  void NoteTasks(int64_t tasks);
  void CheckScratch();
  void CheckClock();
  void Sample();
  void EndBy(Ending ending);
  void Add(Violation violation);
  void AddLimit(ViolationClass violation_class, const char* reason, int64_t limit,
                std::vector<std::pair<std::string, EvidenceValue>> evidence);
  Status Finish();
  void JudgeCounters();
  int64_t ElapsedMs() const { return (MonotonicNanos() - start_) / 1'000'000; }

  Sandbox& sandbox_;
  const uint32_t command_;
  const RunOptions& options_;
  const Limits& limits_;
  linux_sys::EventLoop loop_;
  int listener_fd_ = -1;  // the observer's, until nobody is left to be observed
  Streams streams_;
  CommandOutcome outcome_;
  GroupCounters before_;
  int64_t start_ = 0;
  int64_t kill_at_ms_ = -1;  // after a signal's grace
  int64_t next_sample_ms_ = 0;
  int64_t recheck_memory_until_ms_ = -1;  // the kernel tells of an OOM a moment before it counts it
  TreeMeasure peak_;
  int64_t next_counters_ms_ = kCounterIntervalMs;
  int64_t refused_forks_ = 0;         // where no cgroup counts them: threads asked for beyond the limit
  int64_t tasks_at_most_ = 0;         // if nothing was forked since they were measured
  int64_t over_limit_since_ms_ = -1;  // more tasks than allowed whenever looked at since, where no cgroup refuses them
  bool was_over_limit_ = false;
  bool scratch_full_ = false;
  bool ended_ = false;  // PID 1 has reported the command's end
  bool lost_ = false;   // PID 1 is gone without a report
  bool killed_ = false;
};

Streams::Ends Supervision::MakeEnds(Sandbox& sandbox, uint32_t command, const RunOptions& options) {
  Streams::Ends ends;
  ends.stdio = sandbox.spec_.stdio;
  ends.terminal = sandbox.terminal_.get();
  ends.stdout_pipe = sandbox.stdout_pipe_.get();
  ends.stderr_pipe = sandbox.stderr_pipe_.get();
  ends.stdin_pipe = &sandbox.stdin_pipes_[command];
  ends.stdin_bytes =
      sandbox.spec_.commands[command].stdin_bytes ? &*sandbox.spec_.commands[command].stdin_bytes : nullptr;
  ends.on_output = &options.on_output;
  ends.input_tag = kInput;
  ends.input_sink_tag = kInputSink;
  ends.output_tag = kOutput;
  ends.error_tag = kError;
  ends.output_sink_tag = kOutputSink;
  ends.error_sink_tag = kErrorSink;
  return ends;
}

void Supervision::Watch() {
  listener_fd_ = sandbox_.observer_->fd();
  loop_.Watch(sandbox_.first_.control(), EPOLLIN, kControl);
  loop_.Watch(sandbox_.first_.pidfd(), EPOLLIN, kPidfd);
  loop_.Watch(sandbox_.dns_.get(), EPOLLIN, kDns);
  if (options_.signal_fd >= 0) loop_.Watch(options_.signal_fd, EPOLLIN, kSignal);
  if (sandbox_.berth_.group) {
    const bool v1 = sandbox_.berth_.group->driver() == CgroupDriver::kHybrid;
    if (sandbox_.berth_.group->oom_event_fd() >= 0)
      loop_.Watch(sandbox_.berth_.group->oom_event_fd(), v1 ? EPOLLIN : EPOLLPRI, kOom);
    if (command_ != 0) before_ = sandbox_.berth_.group->Read();  // a new group has counted nothing
  }
  streams_.Start();
}

Result<CommandOutcome> Supervision::Run() {
  if (!sandbox_.first_.lives()) return Error::Unsupported("the sandbox has already ended");
  Watch();
  start_ = MonotonicNanos();
  const Order order{Order::kRunCommand, command_, options_.last ? 1U : 0U};
  if (::send(sandbox_.first_.control(), &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order))
    return Error::System(errno, "start the command");
  sandbox_.ReclaimStale();  // while the workload starts: what runs that were killed with their keepers left behind
  while (!ended_ && !lost_ && !killed_) {
    Await();
    CheckClock();
    if (ElapsedMs() >= next_counters_ms_) ReadCounters();
    if (sandbox_.meter_ && ElapsedMs() >= next_sample_ms_) Sample();
    if (recheck_memory_until_ms_ >= 0) CheckMemory();
    if (streams_.total_bytes() > static_cast<uint64_t>(limits_.output_bytes)) EndBy(Ending::kOutputLimit);
    if (options_.on_turn) options_.on_turn();
  }
  CAISSON_TRY_VOID(Finish());
  return std::move(outcome_);
}

// The filter's listener is waited for beside the epoll and not in it: poll hands on the kernel's wish to wake us on the
// CPU of the call that is to be looked at, and epoll does not. Waking the other one takes several times as long.
void Supervision::Await() {
  struct pollfd waits[] = {{listener_fd_, POLLIN, 0}, {loop_.fd(), POLLIN, 0}};
  if (::poll(waits, 2, NextTimeout()) <= 0) return;
  if ((waits[0].revents & POLLIN) != 0) {
    OnNotification();
  } else if (waits[0].revents != 0) {
    listener_fd_ = -1;  // nobody is left whom the filter binds
  }
  if (waits[1].revents == 0) return;
  for (const auto& event : loop_.Wait(0)) Dispatch(event.data.u32);
}

void Supervision::Dispatch(uint32_t tag) {
  switch (tag) {
    case kControl:
      return OnControl();
    case kPidfd:
      // A report that was sent before PID 1 went is still in the socket.
      OnControl();
      if (!ended_) lost_ = true;
      return;
    case kDns:
      return OnDns();
    case kOom:
      recheck_memory_until_ms_ = ElapsedMs() + 500;
      return CheckMemory();
    case kSignal:
      return OnSignal();
    default:
      streams_.Dispatch(tag);
  }
}

int Supervision::NextTimeout() const {
  const int64_t now = ElapsedMs();
  int64_t next = std::min(options_.timeout_ms, next_counters_ms_) - now;
  if (kill_at_ms_ >= 0) next = std::min(next, kill_at_ms_ - now);
  if (sandbox_.meter_) next = std::min(next, next_sample_ms_ - now);
  if (recheck_memory_until_ms_ >= 0) next = std::min<int64_t>(next, 1);
  return static_cast<int>(std::clamp<int64_t>(next, 0, 1'000'000) + (next > 0 && next < 1'000'000 ? 1 : 0));
}

void Supervision::OnControl() {
  Report report{};
  while (TakeReport(sandbox_.first_.control(), report, MSG_DONTWAIT)) {
    if (report.kind == Report::kExecFailed) {
      outcome_.ending = Ending::kNotExecutable;
      outcome_.exec_errno = report.error;
    } else if (report.kind == Report::kCommandEnded) {
      ended_ = true;
      outcome_.left_processes = report.left_processes != 0;
      if (sandbox_.meter_) NoteTasks(int64_t{report.left_processes} + 1);  // and the one that ended
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
    Add(*std::move(seen.violation));
  }
  if (seen.kill) EndBy(Ending::kSyscall);
}

void Supervision::OnDns() {
  uint8_t packet[1024];
  sockaddr_storage peer{};
  socklen_t peer_size = sizeof(peer);
  const ssize_t size = ::recvfrom(sandbox_.dns_.get(), packet, sizeof(packet), MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&peer), &peer_size);
  if (size < 0) return;
  const std::span<const uint8_t> bytes(packet, static_cast<size_t>(size));
  const auto question = ParseDnsQuery(bytes);
  Violation violation;
  violation.violation_class = ViolationClass::kNetworkAccess;
  violation.reason = "net.dns";
  violation.time_ms = ElapsedMs();
  violation.suggestion = "the sandbox has no network; names other than localhost do not resolve";
  if (question) {
    violation.evidence.emplace_back("name", question->name);
    violation.evidence.emplace_back("record_type", int64_t{question->type});
    const std::vector<uint8_t> answer = MakeNoSuchName(bytes);
    ::sendto(sandbox_.dns_.get(), answer.data(), answer.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&peer),
             peer_size);
  } else {
    violation.evidence.emplace_back("malformed_query_bytes", int64_t{size});
  }
  Add(std::move(violation));
}

void Supervision::OnSignal() {
  // One record for each time it is said to be ready: whoever holds the other end cannot make us wait for a second one.
  struct signalfd_siginfo info {};
  const ssize_t size = ::read(options_.signal_fd, &info, sizeof(info));
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size != sizeof(info)) return EndBy(Ending::kCancelled);
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGWINCH) return streams_.ResizeTerminal();
  if (signal == SIGCHLD) return;
  const bool deadly = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  // A second one, or no grace: now.
  if (deadly && (options_.signal_grace_ms == 0 || kill_at_ms_ >= 0)) return EndBy(Ending::kCancelled);
  linux_sys::PidfdSendSignal(sandbox_.first_.pidfd(), signal);
  if (deadly) kill_at_ms_ = ElapsedMs() + options_.signal_grace_ms;
}

void Supervision::CheckClock() {
  const int64_t now = ElapsedMs();
  // A bomb may leave nobody time to look a second time; that is what its own was spent on.
  if (now >= options_.timeout_ms) EndBy(over_limit_since_ms_ >= 0 ? Ending::kProcessLimit : Ending::kTimeout);
  if (kill_at_ms_ >= 0 && now >= kill_at_ms_) EndBy(Ending::kCancelled);
}

void Supervision::CheckMemory() {
  uint64_t ignored;
  while (::read(sandbox_.berth_.group->oom_event_fd(), &ignored, sizeof(ignored)) > 0 &&
         sandbox_.berth_.group->driver() == CgroupDriver::kHybrid) {
  }
  if (sandbox_.berth_.group->Read().oom_kills > before_.oom_kills) return EndBy(Ending::kMemoryLimit);
  if (ElapsedMs() > recheck_memory_until_ms_) recheck_memory_until_ms_ = -1;
}

void Supervision::ReadCounters() {
  const int64_t now = ElapsedMs();
  next_counters_ms_ = now + std::clamp(now / 10, kCounterIntervalMs, kLongestCounterIntervalMs);
  CheckScratch();
  if (sandbox_.berth_.group) refused_forks_ = sandbox_.berth_.group->ReadRefusedForks() - before_.refused_forks;
  if (refused_forks_ > kToleratedRefusedForks) EndBy(Ending::kProcessLimit);
}

void Supervision::BeforeThread() {
  if (++tasks_at_most_ <= limits_.processes) return;
  NoteTasks(sandbox_.meter_->Measure().tasks + 1);
  if (over_limit_since_ms_ >= 0) ++refused_forks_;
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
  if (scratch_full_ || ::fstatfs(sandbox_.scratch_.get(), &info) != 0) return;
  const int64_t used = static_cast<int64_t>(info.f_blocks - info.f_bfree) * info.f_bsize;
  outcome_.usage.scratch_bytes = std::max(outcome_.usage.scratch_bytes, used);
  if (info.f_bfree != 0 && info.f_ffree != 0) return;
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
  NoteTasks(now.tasks);
  peak_.cpu_ms = std::max(peak_.cpu_ms, now.cpu_ms);
  // Pages of scratch are memory too, as they are where a cgroup counts them.
  const int64_t scratch = outcome_.usage.scratch_bytes;
  int64_t memory = now.resident_bytes + scratch;
  if (memory > limits_.memory_bytes) memory = sandbox_.meter_->ProportionalBytes() + scratch;
  peak_.resident_bytes = std::max(peak_.resident_bytes, memory);
  if (memory > limits_.memory_bytes && !ended_) {
    EndBy(Ending::kMemoryLimit);
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes, {{"measured_bytes", memory}});
  }
  const bool busy = memory > limits_.memory_bytes / 2;
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

void Supervision::Add(Violation violation) {
  if (options_.on_violation) options_.on_violation(violation);
  if (outcome_.violations.size() >= kMaxViolations) {
    ++outcome_.violations_dropped;
    return;
  }
  outcome_.violations.push_back(std::move(violation));
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
  CheckScratch();
  if (sandbox_.meter_ && !lost_ && !killed_) Sample();
  if (killed_ || lost_) sandbox_.Kill();
  // Every writer is dead or is PID 1, which writes nothing: what the pipes hold now is all there is. If this was the
  // last command, PID 1 is going, and the namespaces with it; the result does not wait for that.
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
  if (lost_ && outcome_.ending != Ending::kMemoryLimit) {
    return Error::System(ECHILD, "PID 1 of the sandbox was killed from outside");
  }
  if (killed_ || outcome_.ending == Ending::kMemoryLimit) {
    outcome_.signal = SIGKILL;
    outcome_.exit_code = outcome_.ending == Ending::kSyscall ? 128 + SIGSYS : 128 + SIGKILL;
  }
  return {};
}

void Supervision::JudgeCounters() {
  const bool clean = outcome_.ending == Ending::kExited && outcome_.exit_code == 0 && !outcome_.left_processes;
  if (!sandbox_.berth_.group) {
    outcome_.usage.cpu_ms = peak_.cpu_ms;
    outcome_.usage.peak_memory_bytes = peak_.resident_bytes;
    outcome_.usage.processes_peak = peak_.tasks;
    if (was_over_limit_ && !clean) {
      AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes, {{"measured_tasks", peak_.tasks}});
    }
    return;
  }
  const GroupCounters after = sandbox_.berth_.group->Read();
  outcome_.usage.cpu_ms = after.cpu_ms - before_.cpu_ms;
  outcome_.usage.throttled_ms = after.throttled_ms - before_.throttled_ms;
  outcome_.usage.peak_memory_bytes = after.peak_memory_bytes;
  outcome_.usage.processes_peak = std::max<int64_t>(after.peak_processes - 1, 0);  // PID 1 is ours
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

Result<CommandOutcome> Sandbox::Run(uint32_t command, const RunOptions& options) {
  return Supervision(*this, command, options).Run();
}

}  // namespace caisson::sandbox
