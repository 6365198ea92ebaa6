#include <optional>

#include "base/words.h"
#include "store/sql/rows.h"
#include "store/sql/sql_store.h"
#include "store/sql/steps.h"

namespace caisson::store::sql {
namespace {

// Takes the key if it is free or expired. If several transactions try at the same time, one succeeds and the others
// wait for its end.
constexpr char kTakeKey[] =
    "INSERT INTO idempotency_keys (tenant, key, request_digest, job_id, expires_ms) VALUES ($1, $2, $3, $4, $5) "
    "ON CONFLICT (tenant, key) DO UPDATE SET request_digest = excluded.request_digest, job_id = excluded.job_id, "
    "expires_ms = excluded.expires_ms "
    "WHERE idempotency_keys.expires_ms > 0 AND idempotency_keys.expires_ms <= $6";
constexpr char kFindKey[] = "SELECT request_digest, job_id FROM idempotency_keys WHERE tenant = $1 AND key = $2";

constexpr char kWaitingOf[] = "SELECT coalesce(sum(jobs), 0) FROM waiting WHERE tenant = $1";

constexpr char kInsertJob[] =
    "INSERT INTO jobs (id, tenant, submitter, request_id, request_digest, idempotency_key, labels, callback_url, "
    "priority, max_attempts, submitted_ms, deadline_ms, state, lane, attempt, not_before_ms, approval_id, last_event) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, '', $17) "
    "ON CONFLICT (id) DO NOTHING";
constexpr char kInsertRequest[] = "INSERT INTO requests (job_id, body) VALUES ($1, $2)";
constexpr char kInsertLabel[] =
    "INSERT INTO job_labels (job_id, key, value) VALUES ($1, $2, $3) ON CONFLICT (key, value, job_id) DO NOTHING";

// The job that has the key, or nothing when the key is now that of `job`.
Result<std::optional<Job>> TakeKey(Session& session, const Job& job, int64_t key_expires_ms) {
  // Tried twice: the job that has the key can be removed between the two queries.
  for (int turn = 0; turn < 2; ++turn) {
    CAISSON_TRY(const int64_t taken, session.Run(kTakeKey, {job.tenant, job.idempotency_key, job.request_digest, job.id,
                                                            key_expires_ms, job.submitted_ms}));
    if (taken > 0) return std::optional<Job>();
    std::string digest;
    std::string holder;
    CAISSON_TRY_VOID(session.Run(kFindKey, {job.tenant, job.idempotency_key}, [&](const Row& row) {
      digest = row.Text(0);
      holder = row.Text(1);
    }));
    if (holder.empty()) continue;
    if (digest != job.request_digest) {
      return Error::Conflict("the idempotency key " + Quoted(job.idempotency_key) +
                             " was used for another request, by job " + Quoted(holder) + "; choose a new key");
    }
    CAISSON_TRY(std::optional<Job> found, FindWhole(session, holder));
    if (found) return found;
  }
  return Error::Conflict("the job with the idempotency key " + Quoted(job.idempotency_key) +
                         " is being removed; submit it again");
}

Status CheckBounds(Session& session, const std::string& tenant, const QueueBounds& bounds) {
  const auto check = [&](const std::string& whose, int64_t bound, const std::string& text) -> Status {
    if (bound <= 0) return {};
    int64_t waiting = 0;
    CAISSON_TRY_VOID(session.Run(kWaitingOf, {whose}, [&](const Row& row) { waiting = row.Int(0); }));
    if (waiting < bound) return {};
    return Error::Exhausted("the queue is full: " + std::to_string(waiting) + " jobs" + text +
                            " wait already; try again later");
  };
  CAISSON_TRY_VOID(check(tenant, bounds.max_waiting_per_tenant, " of this tenant"));
  return check("", bounds.max_waiting, "");
}

}  // namespace

Result<Submitted> SqlStore::Submit(const Job& job, const QueueBounds& bounds, int64_t key_expires_ms,
                                   const std::vector<Event>& events) {
  if (job.id.empty() || job.tenant.empty()) return Error::Invalid("a job needs an id and a tenant");
  return Write<Submitted>(Durability::kDurable, [&](Session& session, Submitted& given) -> Status {
    if (!job.idempotency_key.empty()) {
      CAISSON_TRY(std::optional<Job> known, TakeKey(session, job, key_expires_ms));
      if (known) {
        given = {*std::move(known), true};
        return {};
      }
    }
    CAISSON_TRY_VOID(CheckBounds(session, job.tenant, bounds));
    const auto event_count = static_cast<int64_t>(events.size());
    const Lane lane = job.not_before_ms > 0 ? Lane::kDelayed : Lane::kReady;
    CAISSON_TRY(const int64_t inserted,
                session.Run(kInsertJob, {job.id, job.tenant, job.submitter, job.request_id, job.request_digest,
                                         job.idempotency_key, EncodeLabels(job.labels), job.callback_url, job.priority,
                                         job.max_attempts, job.submitted_ms, job.deadline_ms, Number(JobState::kQueued),
                                         Number(lane), job.attempt, job.not_before_ms, event_count}));
    if (inserted == 0) return Error::Conflict("there is a job " + Quoted(job.id) + " already");
    CAISSON_TRY_VOID(session.Post(kInsertRequest, {job.id, job.request}));
    for (const auto& [key, value] : job.labels) CAISSON_TRY_VOID(session.Post(kInsertLabel, {job.id, key, value}));
    CAISSON_TRY_VOID(InsertEvents(session, job.id, event_count, events));
    CAISSON_TRY_VOID(InsertBlobs(session, job.id, job.blobs));
    CAISSON_TRY_VOID(AddWaiting(session, {{job.tenant, 1}}));
    given.job = job;
    return {};
  });
}

}  // namespace caisson::store::sql
