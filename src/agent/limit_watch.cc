#include "agent/limit_watch.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace caisson::agent {

namespace {

// As for native sandboxes (sandbox/supervision.cc).
constexpr int64_t kIntervalMs = 10;
constexpr int64_t kBusyIntervalMs = 3;
constexpr int64_t kToleratedAboveMs = 1000;
constexpr int64_t kToleratedRefused = 64;

}  // namespace

Result<std::unique_ptr<LimitWatch>> LimitWatch::Make(const sandbox::Limits& limits, dev_t scratch) {
  sandbox::TreeMeter::Views views;
  views.proc = UniqueFd(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!views.proc) return Error::System(errno, "open /proc");
  views.segments = UniqueFd(::openat(views.proc.get(), "sysvipc/shm", O_RDONLY | O_CLOEXEC));
  views.diagnosis = UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  views.scratch = scratch;
  return std::unique_ptr<LimitWatch>(new LimitWatch(limits, std::move(views)));
}

void LimitWatch::Begin() {
  passed_.reset();
  next_sample_ms_ = tasks_at_most_ = refused_ = most_tasks_ = most_bytes_ = 0;
  above_since_ms_ = -1;
  was_above_ = false;
  cpu_before_ms_ = meter_.Measure().cpu_ms;
}

void LimitWatch::BeforeThread(int64_t now_ms) {
  if (++tasks_at_most_ <= limits_.processes) return;
  CheckTasks(now_ms, meter_.Measure().tasks, 1);
  if (above_since_ms_ >= 0 && ++refused_ > kToleratedRefused)
    Pass(Ending::kProcessLimit, {{"measured_tasks", most_tasks_}});
}

void LimitWatch::CheckTasks(int64_t now_ms, int64_t measured, int64_t asked_for) {
  if (measured + asked_for > limits_.processes) measured = meter_.TasksAtOnce();
  tasks_at_most_ = measured + asked_for;
  most_tasks_ = std::max(most_tasks_, tasks_at_most_);
  if (tasks_at_most_ <= limits_.processes) {
    above_since_ms_ = -1;
    return;
  }
  was_above_ = true;
  if (above_since_ms_ < 0) above_since_ms_ = now_ms;
  if (now_ms - above_since_ms_ >= kToleratedAboveMs) Pass(Ending::kProcessLimit, {{"measured_tasks", most_tasks_}});
}

void LimitWatch::Sample(int64_t now_ms, int64_t scratch_bytes) {
  const sandbox::TreeMeasure now = meter_.Measure();
  CheckTasks(now_ms, now.tasks, 0);
  // Pages of scratch count as memory, as they do where a cgroup counts them.
  const sandbox::MemoryMeasure memory = meter_.Memory(now, scratch_bytes, limits_.memory_bytes);
  most_bytes_ = std::max(most_bytes_, memory.bytes);
  // A process that prevents its measurement may have more than the limit, and is treated so.
  if (memory.bytes > limits_.memory_bytes || memory.unmeasured > 0) {
    std::vector<std::pair<std::string, EvidenceValue>> evidence = {{"measured_bytes", memory.bytes}};
    if (memory.unmeasured > 0) evidence.emplace_back("unmeasured_processes", memory.unmeasured);
    Pass(Ending::kMemoryLimit, std::move(evidence));
  }
  const int64_t cpu_ms = now.cpu_ms - cpu_before_ms_;
  if (limits_.cpu_time_ms > 0 && cpu_ms > limits_.cpu_time_ms) Pass(Ending::kTimeout, {{"cpu_ms", cpu_ms}});
  next_sample_ms_ = now_ms + (memory.bytes > limits_.memory_bytes / 2 ? kBusyIntervalMs : kIntervalMs);
}

void LimitWatch::Pass(Ending ending, std::vector<std::pair<std::string, EvidenceValue>> evidence) {
  if (!passed_) passed_ = Passed{ending, std::move(evidence)};
}

}  // namespace caisson::agent
