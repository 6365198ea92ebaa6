#include "service/workers.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "linux/files.h"
#include "service/job_runner.h"

namespace caisson::service {
namespace {

using std::chrono::milliseconds;

// How soon a job is seen that another service put into the same database, or that had to wait for its time.
constexpr milliseconds kPoll{200};
// How soon a running job's events are in the store. Shorter jobs write them with their result.
constexpr milliseconds kPulse{20};

}  // namespace

int64_t AvailableMemory() {
  const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, "/proc/meminfo");
  constexpr std::string_view kField = "MemAvailable:";
  const size_t field = text ? text->find(kField) : std::string::npos;
  return field == std::string::npos ? 0 : std::strtoll(text->c_str() + field + kField.size(), nullptr, 10) * 1024;
}

Workers::Workers(Parts& parts, int64_t count, int64_t job_memory) : parts_(parts), job_memory_(job_memory) {
  for (int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { Work(); });
  pulse_ = std::thread([this] { Pulse(); });
}

Workers::~Workers() {
  Drain(0);
  for (std::thread& thread : threads_) thread.join();
  {
    const std::lock_guard lock(mutex_);
    pulse_stopping_ = true;
  }
  pulse_.join();
}

void Workers::Wake() {
  {
    const std::lock_guard lock(mutex_);
    pending_ = true;
  }
  wake_.notify_one();
}

bool Workers::MemoryFits() const {
  int64_t busy = 0;
  {
    const std::lock_guard lock(mutex_);
    busy = busy_;
  }
  // What runs may still come to take its whole limit. What it has taken already counts twice; that errs to the safe
  // side.
  return AvailableMemory() >= parts_.config.memory_reserve + (busy + 1) * job_memory_;
}

bool Workers::AwaitTurn() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kPoll, [this] { return stopping_ || pending_; });
  pending_ = false;
  return !stopping_;
}

void Workers::Work() {
  bool found = true;  // look before waiting: there may be jobs from before
  while (found || AwaitTurn()) {
    found = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    // SECURITY: a job that could not be recorded must not begin. And one that cannot run now should not use up an
    // attempt.
    if (!parts_.trail->Usable() || !MemoryFits() || !parts_.runtime_ready()) {
      std::this_thread::sleep_for(kPulse);
      continue;
    }
    store::ClaimOptions options;
    options.worker = parts_.worker;
    options.now_ms = UnixMillis();
    options.lease_ms = parts_.config.lease_ms;
    options.tenant_limit = parts_.config.tenant_concurrency;
    options.tenant_limits = parts_.config.tenant_limits;
    Result<std::vector<store::Job>> claimed = parts_.store->Claim(options);
    if (!claimed) {
      parts_.metrics.Add("caisson_store_errors_total");
      continue;
    }
    for (store::Job& job : *claimed) {
      found = true;
      job.started_ms = options.now_ms;
      Result<std::shared_ptr<LiveJob>> live = LiveJob::Make(std::move(job), parts_.changes);
      if (!live) continue;  // no descriptors left; the lease will run out
      parts_.live.Add(*live);
      {
        const std::lock_guard lock(mutex_);
        ++busy_;
      }
      JobRunner(parts_, *live).Run();
      parts_.live.Remove((*live)->job().id);
      {
        const std::lock_guard lock(mutex_);
        --busy_;
      }
      idle_.notify_all();
    }
  }
}

void Workers::Pulse() {
  int64_t renewed_ms = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (pulse_stopping_) return;
      parts_.metrics.Set("caisson_workers", "state=\"busy\"", static_cast<double>(busy_));
      parts_.metrics.Set("caisson_workers", "state=\"idle\"",
                         static_cast<double>(threads_.size()) - static_cast<double>(busy_));
    }
    std::this_thread::sleep_for(kPulse);
    for (const std::shared_ptr<LiveJob>& live : parts_.live.All()) {
      const Status written = live->WriteEvents(*parts_.store);
      if (!written && written.error().kind == ErrorKind::kConflict) live->RequestStop(Stop::kLeaseLost);
    }
    const int64_t now = MonotonicNanos() / 1'000'000;
    if (now - renewed_ms < parts_.config.lease_ms / 3) continue;
    renewed_ms = now;
    Renew();
  }
}

void Workers::Renew() {
  const std::vector<std::shared_ptr<LiveJob>> live = parts_.live.All();
  if (live.empty()) return;
  std::vector<store::Lease> leases;
  leases.reserve(live.size());
  for (const std::shared_ptr<LiveJob>& job : live) leases.push_back(job->lease());
  const Result<std::vector<store::LeaseFate>> fates =
      parts_.store->Renew(leases, UnixMillis() + parts_.config.lease_ms);
  if (!fates) {
    parts_.metrics.Add("caisson_store_errors_total");
    return;
  }
  for (size_t i = 0; i < live.size(); ++i) {
    // A job that ended just now has no lease either; then nobody listens to its stop any more.
    if ((*fates)[i] == store::LeaseFate::kLost) live[i]->RequestStop(Stop::kLeaseLost);
    if ((*fates)[i] == store::LeaseFate::kCancelled) live[i]->RequestStop(Stop::kCancelled);
  }
}

void Workers::Drain(int64_t grace_ms) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
  if (idle_.wait_for(lock, milliseconds(grace_ms), [this] { return busy_ == 0; })) return;
  lock.unlock();
  for (const std::shared_ptr<LiveJob>& live : parts_.live.All()) live->RequestStop(Stop::kShutdown);
  lock.lock();
  idle_.wait(lock, [this] { return busy_ == 0; });
}

}  // namespace caisson::service
