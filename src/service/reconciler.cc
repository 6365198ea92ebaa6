#include "service/reconciler.h"

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/clock.h"
#include "service/documents.h"
#include "service/job_runner.h"
#include "verify/run_driver.h"

namespace caisson::service {
namespace {

constexpr std::chrono::milliseconds kRound{500};
constexpr int64_t kCleaningMs = 60'000;
// A blob older than this without a reference will never get one.
constexpr int64_t kBlobGraceMs = 3'600'000;
constexpr int64_t kBatch = 100;

}  // namespace

Reconciler::Reconciler(ServiceContext& context) : context_(context) {
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
  context_.audit_writer->Probe();
  context_.metrics.Set("caisson_audit_usable", "", context_.audit_writer->Usable() ? 1 : 0);
  if (!context_.audit_writer->Usable()) return;  // record every repair first
  LostWorkers();
  OverdueJobs();
  UnansweredApprovals();
  // Notes from before a crash, and those of the approvals above.
  if (!context_.audit_writer->WriteNotes(*context_.store)) context_.metrics.Add("caisson_store_errors_total");
  const int64_t now = MonotonicNanos() / 1'000'000;
  if (cleaned_ms_ == 0 || now - cleaned_ms_ > kCleaningMs) {
    cleaned_ms_ = now;
    OldThings();
  }
}

void Reconciler::Repair(const store::Job& job) {
  const Error lost = Error{ErrorKind::kSystem, 0, "worker " + job.worker + " was lost"};
  // This process is alive but could not reach the store in time (no database, a full disk); the job is not at fault.
  const Status repaired = job.worker == context_.worker
                              ? PostponeAttempt(context_, job, lost, {})
                              : EndAttempt(context_, job, verify::RetryCause::kLostWorker, lost, nullptr, {});
  if (!repaired && repaired.error().kind != ErrorKind::kConflict) context_.metrics.Add("caisson_store_errors_total");
}

Status Reconciler::TakeBackOwn() {
  const std::string node = context_.worker.substr(0, context_.worker.rfind('.') + 1);
  for (;;) {
    CAISSON_TRY(const std::vector<store::Job> leased,
                context_.store->LapsedLeases(std::numeric_limits<int64_t>::max(), std::numeric_limits<int32_t>::max()));
    bool found = false;
    for (const store::Job& job : leased) {
      const bool own = std::string_view(job.worker).substr(0, node.size()) == node && job.worker != context_.worker;
      if (!own) continue;
      found = true;
      Repair(job);
    }
    if (!found) return {};
  }
}

void Reconciler::LostWorkers() {
  const Result<std::vector<store::Job>> lapsed = context_.store->LapsedLeases(UnixMillis(), kBatch);
  if (!lapsed) return context_.metrics.Add("caisson_store_errors_total");
  for (const store::Job& job : *lapsed) Repair(job);
}

void Reconciler::OverdueJobs() {
  store::ClaimOptions options;
  options.worker = context_.worker;
  options.now_ms = UnixMillis();
  options.lease_ms = context_.config.lease_ms;
  options.max_jobs = kBatch;
  const Result<std::vector<store::Job>> overdue = context_.store->TakeOverdue(options);
  if (!overdue) return context_.metrics.Add("caisson_store_errors_total");
  for (const store::Job& job : *overdue) {
    const std::string why = "the deadline passed before an attempt could begin";
    if (!context_.audit_writer->Record(job, TheService(), audit::GivenUp{job.attempt, why})) return;
    store::End end;
    end.state = store::JobState::kDeadLettered;
    end.status = "error";
    end.failure_class = "InfrastructureError";
    end.now_ms = UnixMillis();
    end.events.push_back({0, end.now_ms, "dead_lettered", Dump({{"attempt", job.attempt}, {"error", why}})});
    if (!context_.store->Finish({job.id, job.lease_token}, end)) continue;
    context_.metrics.Add("caisson_dead_letters_total");
    context_.changes->Notify(job.id);
  }
}

void Reconciler::UnansweredApprovals() {
  const Result<std::vector<store::Approval>> expired = context_.store->ExpiredApprovals(UnixMillis(), kBatch);
  if (!expired) return context_.metrics.Add("caisson_store_errors_total");
  for (const store::Approval& approval : *expired) {
    const Result<store::Job> job = context_.store->Find(approval.job_id);
    if (!job) continue;
    const Result<store::End> end =
        RejectedEnd(context_, *job, "no approver answered approval " + approval.id + " in time", "approval_expired",
                    {{"approval_id", approval.id}});
    if (!end) continue;
    const audit::ApprovalStep step{approval.id, approval.plan_digest, verify::Answer::kExpired, ""};
    if (!context_.store->ExpireApproval(approval.id, *end, context_.audit_writer->Note(*job, TheService(), step)))
      continue;
    context_.changes->Notify(job->id);
  }
}

void Reconciler::OldThings() {
  const int64_t now = UnixMillis();
  const Result<int64_t> purged = context_.store->Purge(now - context_.config.retention_ms, now, 10 * kBatch);
  const Result<int64_t> collected =
      context_.blobs->Collect(kBlobGraceMs, [this](const std::vector<std::string>& names, const std::string& tenant) {
        return context_.store->BlobsInUse(names, tenant);
      });
  if (!purged || !collected) context_.metrics.Add("caisson_store_errors_total");
}

}  // namespace caisson::service
