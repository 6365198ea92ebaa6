#include "service/reconciler.h"

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/clock.h"
#include "service/documents.h"
#include "service/job_runner.h"
#include "verify/verifier.h"

namespace caisson::service {
namespace {

constexpr std::chrono::milliseconds kRound{500};
constexpr int64_t kCleaningMs = 60'000;
// A blob older than this that no job refers to never will be.
constexpr int64_t kBlobGraceMs = 3'600'000;
constexpr int64_t kBatch = 100;

}  // namespace

Reconciler::Reconciler(Parts& parts) : parts_(parts) {
  thread_ = std::thread([this] { Loop(); });
}

Reconciler::~Reconciler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Reconciler::Loop() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kRound, [this] { return stopping_; })) {
    lock.unlock();
    Round();
    lock.lock();
  }
}

void Reconciler::Round() {
  parts_.trail->Probe();
  parts_.metrics.Set("caisson_audit_usable", "", parts_.trail->Usable() ? 1 : 0);
  if (!parts_.trail->Usable()) return;  // every repair is recorded first
  LostWorkers();
  OverdueJobs();
  UnansweredApprovals();
  const int64_t now = MonotonicNanos() / 1'000'000;
  if (cleaned_ms_ == 0 || now - cleaned_ms_ > kCleaningMs) {
    cleaned_ms_ = now;
    OldThings();
  }
}

void Reconciler::Repair(const store::Job& job) {
  const Status repaired =
      EndAttempt(parts_, job, verify::RetryCause::kLostWorker, "worker " + job.worker + " was lost", "", {});
  if (!repaired && repaired.error().kind != ErrorKind::kConflict) parts_.metrics.Add("caisson_store_errors_total");
}

Status Reconciler::TakeBackOwn() {
  const std::string node = parts_.worker.substr(0, parts_.worker.rfind('.') + 1);
  for (;;) {
    CAISSON_TRY(const std::vector<store::Job> leased,
                parts_.store->LapsedLeases(std::numeric_limits<int64_t>::max(), std::numeric_limits<int32_t>::max()));
    bool found = false;
    for (const store::Job& job : leased) {
      const bool own = std::string_view(job.worker).substr(0, node.size()) == node && job.worker != parts_.worker;
      if (!own) continue;
      found = true;
      Repair(job);
    }
    if (!found) return {};
  }
}

void Reconciler::LostWorkers() {
  const Result<std::vector<store::Job>> lapsed = parts_.store->LapsedLeases(UnixMillis(), kBatch);
  if (!lapsed) return parts_.metrics.Add("caisson_store_errors_total");
  for (const store::Job& job : *lapsed) Repair(job);
}

void Reconciler::OverdueJobs() {
  store::ClaimOptions options;
  options.worker = parts_.worker;
  options.now_ms = UnixMillis();
  options.lease_ms = parts_.config.lease_ms;
  options.max_jobs = kBatch;
  const Result<std::vector<store::Job>> overdue = parts_.store->TakeOverdue(options);
  if (!overdue) return parts_.metrics.Add("caisson_store_errors_total");
  for (const store::Job& job : *overdue) {
    const std::string why = "the deadline passed before an attempt could begin";
    if (!parts_.trail->Record(job, TheService(), audit::GivenUp{job.attempt, why})) return;
    store::End end;
    end.state = store::JobState::kDeadLettered;
    end.status = "error";
    end.failure_class = "InfrastructureError";
    end.now_ms = UnixMillis();
    end.events.push_back({0, end.now_ms, "dead_lettered", Dump({{"attempt", job.attempt}, {"error", why}})});
    if (!parts_.store->Finish({job.id, job.lease_token}, end)) continue;
    parts_.metrics.Add("caisson_dead_letters_total");
    parts_.changes->Notify(job.id);
  }
}

void Reconciler::UnansweredApprovals() {
  const Result<std::vector<store::Approval>> expired = parts_.store->ExpiredApprovals(UnixMillis(), kBatch);
  if (!expired) return parts_.metrics.Add("caisson_store_errors_total");
  for (const store::Approval& approval : *expired) {
    const Result<store::Job> job = parts_.store->Find(approval.job_id);
    if (!job) continue;
    const Result<store::End> end = RejectedEnd(parts_, *job, "nobody answered approval " + approval.id + " in time",
                                               "approval_expired", {{"approval_id", approval.id}});
    if (!end) continue;
    const audit::ApprovalStep step{approval.id, approval.plan_digest, verify::Answer::kExpired, ""};
    if (!parts_.trail->Record(*job, TheService(), step)) return;
    if (parts_.store->ExpireApproval(approval.id, *end)) parts_.changes->Notify(job->id);
  }
}

void Reconciler::OldThings() {
  const int64_t now = UnixMillis();
  const Result<int64_t> purged = parts_.store->Purge(now - parts_.config.retention_ms, now, 10 * kBatch);
  const Result<int64_t> collected = parts_.blobs->Collect(
      kBlobGraceMs, [this](const std::vector<std::string>& names) { return parts_.store->BlobsInUse(names); });
  if (!purged || !collected) parts_.metrics.Add("caisson_store_errors_total");
}

}  // namespace caisson::service
