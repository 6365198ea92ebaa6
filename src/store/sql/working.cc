// Changes that workers and people make to a job.
#include "base/words.h"
#include "store/sql/rows.h"
#include "store/sql/sql_store.h"
#include "store/sql/steps.h"

namespace caisson::store::sql {
namespace {

// States: 0 queued, 1 awaiting_approval, 2 admitted, 3 running, 8 dead_lettered. Lanes as in rows.h.
static_assert(JobState::kQueued == JobState{0} && JobState::kAwaitingApproval == JobState{1} &&
              JobState::kAdmitted == JobState{2} && JobState::kRunning == JobState{3} &&
              JobState::kDeadLettered == JobState{8});

constexpr char kAdvance[] =
    "UPDATE jobs SET state = $3, started_ms = CASE WHEN $3 = 3 THEN $4 ELSE started_ms END, "
    "last_event = last_event + $5 "
    "WHERE id = $1 AND lease_token = $2 AND state <= $3 AND state <> 1 RETURNING last_event";

constexpr char kReserveEvents[] = "UPDATE jobs SET last_event = last_event + $2 WHERE id = $1 RETURNING last_event";

constexpr char kRetry[] =
    "UPDATE jobs SET state = 0, lane = $3, attempt = attempt + 1, not_before_ms = $4, lease_token = '', worker = '', "
    "lease_until_ms = 0, last_event = last_event + $5 "
    "WHERE id = $1 AND lease_token = $2 RETURNING last_event, tenant";

constexpr char kPostpone[] =
    "UPDATE jobs SET state = 0, lane = $3, not_before_ms = $4, lease_token = '', worker = '', lease_until_ms = 0, "
    "last_event = last_event + $5 WHERE id = $1 AND lease_token = $2 AND state < 4 RETURNING last_event, tenant";

// A job that was claimed while it waited for approval returns to that state.
constexpr char kRelease[] =
    "UPDATE jobs SET state = CASE WHEN state = 1 THEN 1 ELSE 0 END, "
    "lane = CASE WHEN state = 1 THEN 4 WHEN not_before_ms > 0 THEN 3 ELSE 2 END, "
    "lease_token = '', worker = '', lease_until_ms = 0 WHERE id = $1 AND lease_token = $2 RETURNING tenant";

constexpr char kAskToStop[] = "UPDATE jobs SET cancel_requested = 1, cancel_reason = $2 WHERE id = $1";
constexpr char kSetReason[] = "UPDATE jobs SET cancel_reason = $2 WHERE id = $1";

// Restores the original time allowance, and asks for approval again.
constexpr char kRequeue[] =
    "UPDATE jobs SET state = 0, lane = 2, attempt = 1, not_before_ms = 0, cancel_requested = 0, cancel_reason = '', "
    "approval_id = '', "
    "deadline_ms = CASE WHEN deadline_ms > 0 THEN $2 + deadline_ms - submitted_ms ELSE 0 END, "
    "started_ms = 0, finished_ms = 0, status = '', failure_class = '', result_blob = '', last_event = last_event + $3 "
    "WHERE id = $1 RETURNING last_event";
constexpr char kForgetResult[] = "DELETE FROM results WHERE job_id = $1";
constexpr char kForgetCallback[] = "DELETE FROM callbacks WHERE job_id = $1";

Result<Job> Whole(Session& session, const std::string& job_id) {
  CAISSON_TRY(std::optional<Job> job, FindWhole(session, job_id));
  if (!job) return NoSuchJob(job_id);
  return *std::move(job);
}

}  // namespace

Status SqlStore::Advance(const Lease& lease, JobState state, int64_t now_ms, const std::vector<Event>& events) {
  if (state != JobState::kAdmitted && state != JobState::kRunning) {
    return Error::Invalid(std::string("a worker cannot move a job to ") + Name(state));
  }
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kPrompt, [&](Session& session) -> Status {
    int64_t last_event = 0;
    CAISSON_TRY(
        const int64_t moved,
        session.Run(kAdvance, {lease.job_id, lease.token, Number(state), now_ms, static_cast<int64_t>(events.size())},
                    [&](const Row& row) { last_event = row.Int(0); }));
    if (moved == 0) return LeaseLost(lease);
    return InsertEvents(session, lease.job_id, last_event, events);
  });
}

Status SqlStore::AppendEvents(const std::string& job_id, const std::vector<Event>& events) {
  return database_->Write(Durability::kPrompt, [&](Session& session) -> Status {
    int64_t last_event = 0;
    CAISSON_TRY(const int64_t found, session.Run(kReserveEvents, {job_id, static_cast<int64_t>(events.size())},
                                                 [&](const Row& row) { last_event = row.Int(0); }));
    if (found == 0) return NoSuchJob(job_id);
    return InsertEvents(session, job_id, last_event, events);
  });
}

Status SqlStore::Finish(const Lease& lease, const End& end) {
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kDurable, [&](Session& session) { return EndJob(session, lease, end); });
}

Status SqlStore::GiveUp(const Lease& lease, const Attempt& ended, const End& end) {
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    CAISSON_TRY_VOID(EndJob(session, lease, end));
    return InsertAttempt(session, lease.job_id, ended);
  });
}

Status SqlStore::Retry(const Lease& lease, const Attempt& ended, int64_t not_before_ms,
                       const std::vector<Event>& events) {
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    int64_t last_event = 0;
    std::string tenant;
    const Lane lane = not_before_ms > 0 ? Lane::kDelayed : Lane::kReady;
    CAISSON_TRY(const int64_t queued, session.Run(kRetry,
                                                  {lease.job_id, lease.token, Number(lane), not_before_ms,
                                                   static_cast<int64_t>(events.size())},
                                                  [&](const Row& row) {
                                                    last_event = row.Int(0);
                                                    tenant = row.Text(1);
                                                  }));
    if (queued == 0) return LeaseLost(lease);
    CAISSON_TRY_VOID(InsertAttempt(session, lease.job_id, ended));
    CAISSON_TRY_VOID(InsertEvents(session, lease.job_id, last_event, events));
    return AddWaiting(session, {{tenant, 1}});
  });
}

Status SqlStore::Postpone(const Lease& lease, int64_t not_before_ms, const std::vector<Event>& events) {
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    int64_t last_event = 0;
    std::string tenant;
    const Lane lane = not_before_ms > 0 ? Lane::kDelayed : Lane::kReady;
    CAISSON_TRY(const int64_t queued, session.Run(kPostpone,
                                                  {lease.job_id, lease.token, Number(lane), not_before_ms,
                                                   static_cast<int64_t>(events.size())},
                                                  [&](const Row& row) {
                                                    last_event = row.Int(0);
                                                    tenant = row.Text(1);
                                                  }));
    if (queued == 0) return LeaseLost(lease);
    CAISSON_TRY_VOID(InsertEvents(session, lease.job_id, last_event, events));
    return AddWaiting(session, {{tenant, 1}});
  });
}

Status SqlStore::Release(const Lease& lease) {
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kPrompt, [&](Session& session) -> Status {
    std::string tenant;
    CAISSON_TRY(const int64_t released,
                session.Run(kRelease, {lease.job_id, lease.token}, [&](const Row& row) { tenant = row.Text(0); }));
    if (released == 0) return LeaseLost(lease);
    return AddWaiting(session, {{tenant, 1}});
  });
}

Result<Job> SqlStore::Cancel(const std::string& job_id, const std::string& reason, const End& end,
                             const AuditNote& note) {
  return Write<Job>(Durability::kDurable, [&](Session& session, Job& given) -> Status {
    CAISSON_TRY(const Job job, LockJob(session, job_id));
    if (IsEnd(job.state)) {
      return Error::Conflict("job " + Quoted(job_id) + " has ended already, as " + Name(job.state));
    }
    if (!job.cancel_requested) CAISSON_TRY_VOID(InsertNote(session, note));
    if (!job.lease_token.empty()) {
      if (!job.cancel_requested) CAISSON_TRY_VOID(session.Post(kAskToStop, {job_id, reason}));
    } else {
      CAISSON_TRY_VOID(session.Post(kSetReason, {job_id, reason}));
      CAISSON_TRY_VOID(EndJob(session, {job_id, ""}, end));
      CAISSON_TRY_VOID(AddWaiting(session, {{job.tenant, -1}}));
    }
    CAISSON_TRY(given, Whole(session, job_id));
    return {};
  });
}

Result<Job> SqlStore::Requeue(const std::string& job_id, int64_t now_ms, const std::vector<Event>& events) {
  return Write<Job>(Durability::kDurable, [&](Session& session, Job& given) -> Status {
    CAISSON_TRY(const Job job, LockJob(session, job_id));
    if (job.state != JobState::kDeadLettered) {
      return Error::Conflict("job " + Quoted(job_id) + " is " + Name(job.state) + ": only dead letters are requeued");
    }
    int64_t last_event = 0;
    CAISSON_TRY_VOID(session.Run(kRequeue, {job_id, now_ms, static_cast<int64_t>(events.size())},
                                 [&](const Row& row) { last_event = row.Int(0); }));
    CAISSON_TRY_VOID(session.Post(kForgetResult, {job_id}));
    CAISSON_TRY_VOID(session.Post(kForgetCallback, {job_id}));
    CAISSON_TRY_VOID(InsertEvents(session, job_id, last_event, events));
    CAISSON_TRY_VOID(AddWaiting(session, {{job.tenant, 1}}));
    CAISSON_TRY(given, Whole(session, job_id));
    return {};
  });
}

}  // namespace caisson::store::sql
