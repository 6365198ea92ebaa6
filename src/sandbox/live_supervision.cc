#include "sandbox/live_supervision.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "linux/syscalls.h"
#include "sandbox/command_order.h"
#include "sandbox/control.h"
#include "sandbox/dns.h"
#include "sandbox/live_init.h"
#include "sandbox/probes.h"
#include "sandbox/socket_meter.h"
#include "sandbox/streams.h"

namespace caisson::sandbox {

namespace {

constexpr int64_t kCounterIntervalMs = 500;
// Where limits are only watched: often enough that a workload cannot take much more than its limit, and less often
// while it is far below it, because a session lasts for hours.
constexpr int64_t kWatchIntervalMs = 50;
constexpr int64_t kBusyWatchIntervalMs = 5;
constexpr int64_t kToleratedOverLimitMs = 1000;
// Each turn handles at most so many observed calls, so that a flood of them does not keep the caller from its clock.
constexpr int kMostCallsPerTurn = 64;

enum Tag : uint32_t { kControl, kPidfd, kOom, kListener, kNames, kForwards };

NetworkUse DescribeDenied(const Violation& violation) {
  NetworkUse use;
  use.protocol = violation.reason == "net.dns" ? "dns" : "tcp";
  use.reason = "no_network";
  use.connections = 1;
  for (const auto& [key, value] : violation.evidence) {
    if (key == "port" && std::holds_alternative<int64_t>(value)) use.port = std::get<int64_t>(value);
    if (!std::holds_alternative<std::string>(value)) continue;
    if (key == "name") use.name = std::get<std::string>(value);
    if (key == "address") use.address = std::get<std::string>(value);
  }
  if (use.name.empty()) use.name = use.address;
  return use;
}

}  // namespace

LiveSupervision::LiveSupervision(Sandbox& sandbox)
    : sandbox_(sandbox), limits_(sandbox.spec_.limits), budget_(limits_.cpu_millis), start_ns_(MonotonicNanos()) {
  loop_.Watch(sandbox_.first_.control(), EPOLLIN, kControl);
  loop_.Watch(sandbox_.first_.pidfd(), EPOLLIN, kPidfd);
  loop_.Watch(sandbox_.observer_->fd(), EPOLLIN, kListener);
  loop_.Watch(sandbox_.egress_ ? sandbox_.egress_->fd() : sandbox_.dns_->fd(), EPOLLIN, kNames);
  if (sandbox_.egress_ && sandbox_.network_->attended) {
    sandbox_.egress_->set_on_ask([this](const egress::control::Ask& ask) {
      LiveEvent event;
      event.kind = LiveEvent::Kind::kQuestion;
      event.question = {ask.id, ask.name, ask.port, ask.protocol};
      events_.push_back(std::move(event));
    });
  }
  if (!sandbox_.resources_.group) return;
  const LimitGroup& group = *sandbox_.resources_.group;
  const bool v1 = group.driver() == CgroupDriver::kHybrid;
  if (group.oom_event_fd() >= 0) loop_.Watch(group.oom_event_fd(), (v1 ? EPOLLIN : EPOLLPRI) | EPOLLET, kOom);
}

int64_t LiveSupervision::ElapsedMs() const { return (MonotonicNanos() - start_ns_) / 1'000'000; }

int64_t LiveSupervision::OomKills() const {
  return sandbox_.resources_.group ? sandbox_.resources_.group->Read().oom_kills : 0;
}

Result<LiveCommand> LiveSupervision::Begin(const Command& command, const LiveCommandOptions& options) {
  if (ended_) return Error::Unsupported("the sandbox has already ended");
  if (command.argv.empty() || command.argv[0].empty()) return Error::Invalid("command: the program is not named");
  if (!FitsOrder(command)) return Error::Invalid("command: its arguments and variables are larger than Linux accepts");
  if (running_.size() >= kMaxLiveCommands) {
    return Error::Unsupported("as many commands as a session may have run already (" +
                              std::to_string(kMaxLiveCommands) + "); wait for one to end");
  }
  std::optional<uid_t> owner;
  if (sandbox_.isolation_.own_id_range) owner = sandbox_.host_uid_;
  const CommandIo io = options.terminal
                           ? CommandIo::Terminal(-1, -1)
                           : CommandIo::Capture(options.input ? std::optional<std::string>("") : std::nullopt);
  CAISSON_TRY(StreamEnds ends, OpenStreams(io, sandbox_.root_.get(), owner));
  if (options.terminal) {
    struct winsize size {};
    size.ws_row = options.rows;
    size.ws_col = options.columns;
    ::ioctl(ends.terminal.get(), TIOCSWINSZ, &size);
  }
  const uint32_t number = last_number_ + 1;
  CommandMode mode;
  mode.live = number;
  // PID 1 waits for its first command at the socket, and for all later ones by signal. It must read while a command is
  // sent that is larger than the socket's buffer.
  const auto wake = [&]() -> Status { return number > 1 ? Wake() : Status(); };
  CAISSON_TRY_VOID(SendCommand(sandbox_.first_.control(), command, ends.workload, mode, wake));
  last_number_ = number;
  running_[number] = {0, MonotonicNanos(), OomKills()};
  sandbox_.is_quiet_ = false;
  LiveCommand started;
  started.id = number;
  started.input = std::move(ends.input);
  started.output = options.terminal ? std::move(ends.terminal) : std::move(ends.output);
  started.error = std::move(ends.error);
  return started;
}

Status LiveSupervision::Wake() {
  if (linux_sys::PidfdSendSignal(sandbox_.first_.pidfd(), kLookSignal) != 0)
    return Error::System(errno, "wake PID 1 of the sandbox");
  return {};
}

Status LiveSupervision::Order(const LiveOrder& order) {
  if (ended_) return Error::Unsupported("the sandbox has already ended");
  if (last_number_ == 0) return {};  // no process exists that an order could concern
  LiveOrder packet = order;
  struct iovec part {
    &packet, sizeof(packet)
  };
  if (!SendPacket(sandbox_.first_.control(), &part, 1, nullptr, 0)) return Error::System(errno, "send PID 1 an order");
  return Wake();
}

Status LiveSupervision::Signal(uint32_t command, int signal) {
  if (running_.count(command) == 0) return Error::Invalid("the command has ended");
  return Order({LiveOrder::kSignal, command, signal});
}

Status LiveSupervision::EndCommand(uint32_t command) {
  if (running_.count(command) == 0) return Error::Invalid("the command has ended");
  return Order({LiveOrder::kEnd, command, 0});
}

// While it waits it serves observed calls: a process that is waiting for an answer cannot stop.
Status LiveSupervision::Pause() {
  if (last_number_ == 0 && !ended_) return {};
  stopped_.reset();
  CAISSON_TRY_VOID(Order({LiveOrder::kStop, 0, 0}));
  while (!stopped_ && !ended_) {
    struct pollfd wait {
      loop_.fd(), POLLIN, 0
    };
    ::poll(&wait, 1, 100);
    std::vector<LiveEvent> seen = Turn();
    std::move(seen.begin(), seen.end(), std::back_inserter(events_));
  }
  if (ended_) return Error::Unsupported("the sandbox has ended");
  if (*stopped_ != 0)
    return Error::System(*stopped_, "stop the session's processes: some did not stop in time; try again");
  return {};
}

Status LiveSupervision::Resume() { return Order({LiveOrder::kGoOn, 0, 0}); }

int64_t LiveSupervision::MsUntilTurn() const {
  if (ended_ || !events_.empty()) return 0;
  const int64_t now = ElapsedMs();
  int64_t next = next_counters_ms_ - now;
  if (sandbox_.meter_) next = std::min(next, next_sample_ms_ - now);
  if (held_) next = std::min(next, (hold_until_ns_ - MonotonicNanos()) / 1'000'000 + 1);
  return std::max<int64_t>(next, 0);
}

std::vector<LiveEvent> LiveSupervision::Turn() {
  if (held_ && MonotonicNanos() >= hold_until_ns_) {
    held_ = false;
    loop_.Watch(sandbox_.observer_->fd(), EPOLLIN, kListener);
    loop_.Watch(sandbox_.egress_ ? sandbox_.egress_->fd() : sandbox_.dns_->fd(), EPOLLIN, kNames);
  }
  bool lost = false;
  for (const auto& ready : loop_.Wait(0)) {
    switch (ready.data.u32) {
      case kControl:
        TakeReports();
        break;
      case kPidfd:
        lost = true;
        break;
      case kOom:
        next_counters_ms_ = 0;
        break;
      case kListener:
        // Without processes the filter applies to none, and the listener hangs up until PID 1 itself ends.
        if ((ready.events & EPOLLIN) == 0) {
          loop_.Forget(sandbox_.observer_->fd());
          break;
        }
        ServeObserved();
        break;
      case kNames:
        ServeNames();
        break;
      case kForwards:
        ServeForwards();
        break;
    }
  }
  if (lost) {
    TakeReports();  // sent before PID 1 ended
    CheckCounters();
    EndRun("PID 1 of the sandbox was killed from outside, or memory ran out");
  }
  if (!ended_ && ElapsedMs() >= next_counters_ms_) CheckCounters();
  if (!ended_ && sandbox_.meter_ && ElapsedMs() >= next_sample_ms_) Sample();
  return std::exchange(events_, {});
}

void LiveSupervision::ServeObserved() {
  struct pollfd waiting {
    sandbox_.observer_->fd(), POLLIN, 0
  };
  for (int i = 0; i<kMostCallsPerTurn&& ::poll(&waiting, 1, 0)> 0 && (waiting.revents & POLLIN) != 0; ++i)
    OnNotification();
  budget_.Charge(MonotonicNanos(), ThreadCpuNanos());
  if (!budget_.is_empty()) return;
  hold_until_ns_ = budget_.FilledAt();
  held_ = true;
  loop_.Forget(sandbox_.observer_->fd());
  loop_.Forget(sandbox_.egress_ ? sandbox_.egress_->fd() : sandbox_.dns_->fd());
}

void LiveSupervision::OnNotification() {
  Observer::Seen seen = sandbox_.observer_->HandleOne([] {});
  if (seen.violation) Add(*std::move(seen.violation));
  // A call that must never return: its process does not get an answer, and no other process of the run stays beside it.
  if (seen.kill && !Order({LiveOrder::kEndAll, 0, 0})) EndRun("a forbidden system call, and PID 1 does not answer");
}

void LiveSupervision::TakeReports() {
  Report report{};
  while (TakeReport(sandbox_.first_.control(), report, MSG_DONTWAIT)) {
    if (report.kind == Report::kExecFailed) {
      const auto found = running_.find(report.command);
      if (found != running_.end()) found->second.exec_errno = report.error;
    } else if (report.kind == Report::kStopped) {
      stopped_ = report.error;
    } else if (report.kind == Report::kCommandEnded) {
      TakeEnd(report);
    }
  }
}

void LiveSupervision::TakeEnd(const Report& report) {
  const auto found = running_.find(report.command);
  if (found == running_.end()) return;
  LiveEvent event;
  event.kind = LiveEvent::Kind::kCommandEnded;
  event.command = report.command;
  CommandOutcome& outcome = event.outcome;
  outcome.duration_ms = (MonotonicNanos() - found->second.started_ns) / 1'000'000;
  outcome.usage.cpu_ms = report.cpu_us / 1000;
  if (found->second.exec_errno != 0) {
    outcome.ending = Ending::kNotExecutable;
    outcome.exec_errno = found->second.exec_errno;
  } else if (WIFSIGNALED(report.wait_status)) {
    outcome.signal = WTERMSIG(report.wait_status);
    outcome.exit_code = 128 + outcome.signal;
    const bool out_of_memory = outcome.signal == SIGKILL && OomKills() > found->second.oom_kills;
    outcome.ending = out_of_memory ? Ending::kMemoryLimit : Ending::kSignaled;
  } else {
    outcome.exit_code = WEXITSTATUS(report.wait_status);
  }
  running_.erase(found);
  CheckCounters();  // what the command did is reported before its end
  events_.push_back(std::move(event));
}

std::vector<uint8_t> LiveSupervision::AnswerQuery(std::span<const uint8_t> query) {
  if (auto answer = AnswerLocally(query, sandbox_.spec_.hostname)) return *std::move(answer);
  RefusedLookUp refused = RefuseLookUp(query);
  Add(std::move(refused.violation));
  return std::move(refused.answer);
}

void LiveSupervision::ServeNames() {
  if (!sandbox_.egress_) return sandbox_.dns_->Serve([this](auto query) { return AnswerQuery(query); });
  Status served = sandbox_.egress_->Serve([this](const auto& event) { AddNetworkEvent(event); });
  // The record would be incomplete, so the run cannot go on.
  if (!served) EndRun("the egress process failed: " + served.error().message);
}

Status LiveSupervision::AnswerNetwork(const NetworkAnswer& answer) {
  using Scope = NetworkAnswer::Scope;
  using egress::control::Verdict;
  if (!sandbox_.egress_) return Error::Unsupported("the sandbox has no network");
  const Verdict::Scope scope = answer.scope == Scope::kSession    ? Verdict::kSession
                               : answer.scope == Scope::kOnce     ? Verdict::kOnce
                               : answer.scope == Scope::kDenyOnce ? Verdict::kDenyOnce
                                                                  : Verdict::kDeny;
  return sandbox_.egress_->Answer(answer.id, scope);
}

Status LiveSupervision::AllowNetwork(const std::string& rule, const std::string& label) {
  if (!sandbox_.egress_) return Error::Unsupported("the sandbox has no network");
  return sandbox_.egress_->Allow({true, rule, label});
}

Status LiveSupervision::Forward(UniqueFd listener, uint16_t port, uint16_t inside_port) {
  if (ended_) return Error::Unsupported("the sandbox has ended");
  if (forwarder() == nullptr) {
    CAISSON_TRY(std::unique_ptr<EgressLink> link, EgressLink::Start(only_forwards_));
    CAISSON_TRY_VOID(link->ConnectForForwards(std::move(*sandbox_.inside_)));
    forwards_ = std::move(link);
    loop_.Watch(forwards_->fd(), EPOLLIN, kForwards);
  }
  return forwarder()->Forward(std::move(listener), port, inside_port);
}

Status LiveSupervision::EndForward(uint16_t port) {
  return forwarder() != nullptr ? forwarder()->EndForward(port) : Status();
}

// Without this process nothing is lost but the forwards.
void LiveSupervision::ServeForwards() {
  if (forwards_->Serve([this](const auto& event) { AddNetworkEvent(event); })) return;
  loop_.Forget(forwards_->fd());
}

void LiveSupervision::AddNetworkEvent(const egress::control::Event& event) {
  std::optional<Violation> violation = network_.Add(event);
  if (violation) {
    if (event.count > 1) return violations_.Count(*violation);
    Add(*std::move(violation));
  }
  LiveEvent seen;
  seen.kind = LiveEvent::Kind::kNetwork;
  seen.network = NetworkRecord::UseOf(event);
  events_.push_back(std::move(seen));
}

void LiveSupervision::CheckCounters() {
  next_counters_ms_ = ElapsedMs() + kCounterIntervalMs;
  CheckScratch();
  if (!sandbox_.resources_.group) return;
  CheckUncharged();
  const GroupCounters now = sandbox_.resources_.group->Read();
  if (now.oom_kills > oom_kills_) {
    AddLimit(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes,
             {{"oom_kill_before", oom_kills_}, {"oom_kill_after", now.oom_kills}});
    oom_kills_ = now.oom_kills;
  }
  if (now.refused_forks > refused_forks_) {
    AddLimit(ViolationClass::kProcessLimit, "limit.pids", limits_.processes,
             {{"refused_forks_before", refused_forks_}, {"refused_forks_after", now.refused_forks}});
    refused_forks_ = now.refused_forks;
  }
}

// As for ordinary runs: memory that the kernel holds for the group without charging it to the group's limit.
void LiveSupervision::CheckUncharged() {
  LimitGroup& group = *sandbox_.resources_.group;
  const int64_t netlink = NetlinkQueueBytes(sandbox_.proc_.get());
  const int64_t uncharged = group.ReadSocketBytes() + std::max<int64_t>(netlink, 0);
  if (group.FitsBeside(uncharged)) return;
  EndAll(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes,
         {{"measured_bytes", group.ReadMemoryBytes() + uncharged}, {"socket_bytes", uncharged}});
}

void LiveSupervision::CheckScratch() {
  struct statfs info {};
  if (::fstatfs(sandbox_.scratch_.get(), &info) != 0) return;
  scratch_bytes_ = static_cast<int64_t>(info.f_blocks - info.f_bfree) * info.f_bsize;
  const bool full = info.f_bfree == 0 || info.f_ffree == 0;
  if (full && !scratch_full_) {
    AddLimit(ViolationClass::kFilesystemWrite, "scratch_limit",
             info.f_bfree == 0 ? limits_.scratch_bytes : limits_.scratch_inodes, {{"used_bytes", scratch_bytes_}});
  }
  scratch_full_ = full;
}

void LiveSupervision::Sample() {
  TreeMeasure now = sandbox_.meter_->Measure();
  if (now.tasks > limits_.processes) now.tasks = sandbox_.meter_->TasksAtOnce();
  const MemoryMeasure memory = sandbox_.meter_->Memory(now, scratch_bytes_, limits_.memory_bytes);
  peak_memory_ = std::max(peak_memory_, memory.bytes);
  const bool busy = memory.bytes > limits_.memory_bytes / 2 || now.tasks > limits_.processes;
  next_sample_ms_ = ElapsedMs() + (busy ? kBusyWatchIntervalMs : kWatchIntervalMs);
  // A process that prevents its measurement may have more than the limit, and is treated so.
  if (memory.bytes > limits_.memory_bytes || memory.unmeasured > 0) {
    return EndAll(ViolationClass::kMemoryLimit, "limit.mem", limits_.memory_bytes,
                  {{"measured_bytes", memory.bytes}, {"unmeasured_processes", memory.unmeasured}});
  }
  if (now.tasks <= limits_.processes) {
    over_limit_since_ms_ = -1;
  } else if (over_limit_since_ms_ < 0) {
    over_limit_since_ms_ = ElapsedMs();
  } else if (ElapsedMs() - over_limit_since_ms_ >= kToleratedOverLimitMs) {
    over_limit_since_ms_ = -1;
    EndAll(ViolationClass::kProcessLimit, "limit.pids", limits_.processes, {{"measured_tasks", now.tasks}});
  }
}

void LiveSupervision::EndAll(ViolationClass violation_class, const char* reason, int64_t limit,
                             std::vector<std::pair<std::string, EvidenceValue>> evidence) {
  AddLimit(violation_class, reason, limit, std::move(evidence));
  if (!Order({LiveOrder::kEndAll, 0, 0})) EndRun("a limit was passed, and PID 1 does not answer");
}

void LiveSupervision::Add(Violation violation) {
  if (FindProbe(sandbox_.spec_.probes, violation) != nullptr) return;
  violation.time_ms = ElapsedMs();
  if (!violations_.Add(violation, false)) return;
  // Without a network there is no egress process that would report what was denied.
  if (violation.violation_class == ViolationClass::kNetworkAccess && !sandbox_.egress_) {
    LiveEvent denied;
    denied.kind = LiveEvent::Kind::kNetwork;
    denied.network = DescribeDenied(violation);
    events_.push_back(std::move(denied));
  }
  LiveEvent event;
  event.kind = LiveEvent::Kind::kViolation;
  event.violation = std::move(violation);
  events_.push_back(std::move(event));
}

void LiveSupervision::AddLimit(ViolationClass violation_class, const char* reason, int64_t limit,
                               std::vector<std::pair<std::string, EvidenceValue>> evidence) {
  Violation violation;
  violation.violation_class = violation_class;
  violation.reason = reason;
  violation.limit = limit;
  violation.evidence = std::move(evidence);
  Add(std::move(violation));
}

void LiveSupervision::EndRun(std::string reason) {
  if (ended_) return;
  ended_ = true;
  sandbox_.Kill();
  for (const auto& [number, running] : running_) {
    LiveEvent event;
    event.kind = LiveEvent::Kind::kCommandEnded;
    event.command = number;
    event.outcome.ending = Ending::kLost;
    event.outcome.signal = SIGKILL;
    event.outcome.exit_code = 128 + SIGKILL;
    event.outcome.duration_ms = (MonotonicNanos() - running.started_ns) / 1'000'000;
    events_.push_back(std::move(event));
  }
  running_.clear();
  LiveEvent event;
  event.reason = std::move(reason);
  events_.push_back(std::move(event));
}

LiveUsage LiveSupervision::ReadUsage() const {
  LiveUsage usage;
  usage.scratch_bytes = scratch_bytes_;
  if (sandbox_.meter_) {
    const TreeMeasure now = sandbox_.meter_->Measure();
    usage.cpu_ms = now.cpu_ms;
    usage.memory_bytes = now.resident_bytes;
    usage.processes = now.tasks;
    if (peak_memory_ > 0) usage.peak_memory_bytes = peak_memory_;
    return usage;
  }
  const GroupCounters now = sandbox_.resources_.group->Read();
  usage.cpu_ms = now.cpu_ms;
  usage.peak_memory_bytes = now.peak_memory_bytes;
  usage.memory_bytes = sandbox_.resources_.group->ReadMemoryBytes();
  return usage;
}

}  // namespace caisson::sandbox
