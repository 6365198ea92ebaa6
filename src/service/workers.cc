#include "service/workers.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "linux/files.h"
#include "service/job_runner.h"

namespace caisson::service {
namespace {

using std::chrono::milliseconds;

// How soon a worker finds a job that another service submitted, or whose not_before time has come.
constexpr milliseconds kPoll{200};
// How soon a running job's events are in the store. Shorter jobs write them with their result.
constexpr milliseconds kPulse{20};

}  // namespace

Workers::Workers(ServiceContext& context, int64_t count, int64_t job_memory)
    : context_(context), job_memory_(job_memory) {
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
  // A running job may still use its whole limit. Memory that it already uses is counted twice, which is safe.
  const Result<int64_t> available = linux_sys::AvailableMemory();
  return available && *available >= context_.config.memory_reserve + (busy + 1) * job_memory_;
}

bool Workers::AwaitTurn() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kPoll, [this] { return stopping_ || pending_; });
  pending_ = false;
  return !stopping_;
}

void Workers::Work() {
  bool found = true;  // look before waiting: there may be earlier jobs
  while (found || AwaitTurn()) {
    found = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    // SECURITY: a job must not begin without an audit record. A job that cannot run now should not use up an attempt.
    if (!context_.audit_writer->Usable() || !context_.blobs->HasRoom() || !MemoryFits() || !context_.runtime_ready()) {
      std::this_thread::sleep_for(kPulse);
      continue;
    }
    store::ClaimOptions options;
    options.worker = context_.worker;
    options.now_ms = UnixMillis();
    options.lease_ms = context_.config.lease_ms;
    options.tenant_limit = context_.config.tenant_concurrency;
    options.tenant_limits = context_.config.tenant_limits;
    Result<std::vector<store::Job>> claimed = context_.store->Claim(options);
    if (!claimed) {
      context_.metrics.Add("caisson_store_errors_total");
      continue;
    }
    for (store::Job& job : *claimed) {
      found = true;
      job.started_ms = options.now_ms;
      Result<std::shared_ptr<LiveJob>> live =
          LiveJob::Make(std::move(job), context_.changes, context_.blobs->directory());
      if (!live) continue;  // no descriptors left; the lease will run out
      context_.live.Add(*live);
      {
        const std::lock_guard lock(mutex_);
        ++busy_;
      }
      JobRunner(context_, *live).Run();
      context_.live.Remove((*live)->job().id);
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
      context_.metrics.Set("caisson_workers", "state=\"busy\"", static_cast<double>(busy_));
      context_.metrics.Set("caisson_workers", "state=\"idle\"",
                           static_cast<double>(threads_.size()) - static_cast<double>(busy_));
    }
    std::this_thread::sleep_for(kPulse);
    for (const std::shared_ptr<LiveJob>& live : context_.live.All()) {
      const Status written = live->WriteEvents(*context_.store);
      if (!written && written.error().kind == ErrorKind::kConflict) live->RequestStop(Stop::kLeaseLost);
    }
    const int64_t now = MonotonicNanos() / 1'000'000;
    if (now - renewed_ms < context_.config.lease_ms / 3) continue;
    renewed_ms = now;
    Renew();
  }
}

void Workers::Renew() {
  const std::vector<std::shared_ptr<LiveJob>> live = context_.live.All();
  if (live.empty()) return;
  std::vector<store::Lease> leases;
  leases.reserve(live.size());
  for (const std::shared_ptr<LiveJob>& job : live) leases.push_back(job->lease());
  const Result<std::vector<store::LeaseFate>> fates =
      context_.store->Renew(leases, UnixMillis() + context_.config.lease_ms);
  if (!fates) {
    context_.metrics.Add("caisson_store_errors_total");
    return;
  }
  for (size_t i = 0; i < live.size(); ++i) {
    // A job that ended just now has no lease either; stopping it then has no effect.
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
  for (const std::shared_ptr<LiveJob>& live : context_.live.All()) live->RequestStop(Stop::kShutdown);
  lock.lock();
  idle_.wait(lock, [this] { return busy_ == 0; });
}

}  // namespace caisson::service
