#include "store/sql/steps.h"

#include "base/words.h"
#include "store/sql/rows.h"

namespace caisson::store::sql {
namespace {

constexpr char kInsertEvent[] = "INSERT INTO events (job_id, seq, time_ms, type, body) VALUES ($1, $2, $3, $4, $5)";

constexpr char kInsertAttempt[] =
    "INSERT INTO attempts (job_id, ordinal, number, cause, error, worker, started_ms, ended_ms) "
    "VALUES ($1, (SELECT count(*) + 1 FROM attempts WHERE job_id = $1), $2, $3, $4, $5, $6, $7)";

constexpr char kInsertBlob[] =
    "INSERT INTO job_blobs (job_id, sha256, bytes) VALUES ($1, $2, $3) ON CONFLICT (sha256, job_id) DO NOTHING";

constexpr char kInsertNote[] = "INSERT INTO audit_notes (id, node, job_id, record) VALUES ($1, $2, $3, $4)";

constexpr char kFindWhole[] = "SELECT " CAISSON_JOB_COLUMNS
                              ", (SELECT body FROM requests WHERE job_id = jobs.id), "
                              "coalesce((SELECT body FROM results WHERE job_id = jobs.id), '') FROM jobs WHERE id = $1";

constexpr char kLockJob[] = "SELECT " CAISSON_JOB_COLUMNS " FROM jobs WHERE id = $1 FOR UPDATE";

// 0 is Lane::kNone; 4 is the first of the ends.
constexpr char kEndJob[] =
    "UPDATE jobs SET state = $3, status = $4, failure_class = $5, result_blob = $6, finished_ms = $7, lane = 0, "
    "lease_token = '', worker = '', lease_until_ms = 0, last_event = last_event + $8 "
    "WHERE id = $1 AND lease_token = $2 AND state < 4 RETURNING callback_url, last_event, approval_id";
static_assert(JobState::kSucceeded == JobState{4});

constexpr char kInsertResult[] =
    "INSERT INTO results (job_id, body) VALUES ($1, $2) ON CONFLICT (job_id) DO UPDATE SET body = excluded.body";

constexpr char kInsertCallback[] =
    "INSERT INTO callbacks (job_id, url, tries, next_ms) VALUES ($1, $2, 0, $3) "
    "ON CONFLICT (job_id) DO UPDATE SET url = excluded.url, tries = 0, next_ms = excluded.next_ms";

// The approval of an ended job needs no answer any more.
constexpr char kDropQuestion[] = "UPDATE approvals SET state = 3 WHERE job_id = $1 AND state = 0";
static_assert(ApprovalState::kPending == ApprovalState{0} && ApprovalState::kExpired == ApprovalState{3});

constexpr char kAddWaiting[] =
    "INSERT INTO waiting (tenant, shard, jobs) VALUES ($1, $2, $3) "
    "ON CONFLICT (tenant, shard) DO UPDATE SET jobs = waiting.jobs + excluded.jobs";

constexpr char kFindApproval[] = "SELECT " CAISSON_APPROVAL_COLUMNS " FROM approvals WHERE id = $1";
constexpr char kAnswers[] =
    "SELECT approver, granted, reason, time_ms FROM approval_answers WHERE approval_id = $1 ORDER BY ordinal";

}  // namespace

Status InsertEvents(Session& session, const std::string& job_id, int64_t last_seq, const std::vector<Event>& events) {
  int64_t seq = last_seq - static_cast<int64_t>(events.size());
  for (const Event& event : events) {
    CAISSON_TRY_VOID(session.Post(kInsertEvent, {job_id, ++seq, event.time_ms, event.type, event.body}));
  }
  return {};
}

Status InsertAttempt(Session& session, const std::string& job_id, const Attempt& attempt) {
  CAISSON_TRY_VOID(session.Post(kInsertAttempt, {job_id, attempt.number, attempt.cause, attempt.error, attempt.worker,
                                                 attempt.started_ms, attempt.ended_ms}));
  return {};
}

Status InsertBlobs(Session& session, const std::string& job_id, const std::vector<Blob>& blobs) {
  for (const Blob& blob : blobs) CAISSON_TRY_VOID(session.Post(kInsertBlob, {job_id, blob.sha256, blob.bytes}));
  return {};
}

Status InsertNote(Session& session, const AuditNote& note) {
  if (note.id.empty()) return {};
  return session.Post(kInsertNote, {note.id, note.node, note.job_id, note.record});
}

Result<std::optional<Job>> FindWhole(Session& session, const std::string& job_id) {
  std::optional<Job> job;
  CAISSON_TRY_VOID(session.Run(kFindWhole, {job_id}, [&](const Row& row) {
    job = ReadJob(row);
    job->request = row.Text(kJobColumns);
    job->result = row.Text(kJobColumns + 1);
  }));
  return job;
}

Result<Job> LockJob(Session& session, const std::string& job_id) {
  std::optional<Job> job;
  CAISSON_TRY_VOID(session.Run(kLockJob, {job_id}, [&](const Row& row) { job = ReadJob(row); }));
  if (!job) return NoSuchJob(job_id);
  return *std::move(job);
}

Status EndJob(Session& session, const Lease& lease, const End& end) {
  if (!IsEnd(end.state)) return Error::Invalid(std::string("a job cannot end as ") + Name(end.state));
  std::string callback_url;
  std::string approval_id;
  int64_t last_event = 0;
  CAISSON_TRY(const int64_t ended,
              session.Run(kEndJob,
                          {lease.job_id, lease.token, Number(end.state), end.status, end.failure_class, end.result_blob,
                           end.now_ms, static_cast<int64_t>(end.events.size())},
                          [&](const Row& row) {
                            callback_url = row.Text(0);
                            last_event = row.Int(1);
                            approval_id = row.Text(2);
                          }));
  if (ended == 0) return LeaseLost(lease);
  CAISSON_TRY_VOID(InsertEvents(session, lease.job_id, last_event, end.events));
  CAISSON_TRY_VOID(InsertBlobs(session, lease.job_id, end.blobs));
  if (!end.result_blob.empty()) CAISSON_TRY_VOID(InsertBlobs(session, lease.job_id, {{end.result_blob, 0}}));
  if (!end.result.empty()) CAISSON_TRY_VOID(session.Post(kInsertResult, {lease.job_id, end.result}));
  if (!approval_id.empty()) CAISSON_TRY_VOID(session.Post(kDropQuestion, {lease.job_id}));
  if (!callback_url.empty()) CAISSON_TRY_VOID(session.Post(kInsertCallback, {lease.job_id, callback_url, end.now_ms}));
  return {};
}

Status AddWaiting(Session& session, const std::map<std::string, int64_t>& changes) {
  int64_t total = 0;
  for (const auto& [tenant, change] : changes) total += change;
  // The empty name, which is that of the total, comes first here as it would in the map.
  if (total != 0) CAISSON_TRY_VOID(session.Post(kAddWaiting, {"", session.Shard(), total}));
  for (const auto& [tenant, change] : changes) {
    if (change != 0) CAISSON_TRY_VOID(session.Post(kAddWaiting, {tenant, session.Shard(), change}));
  }
  return {};
}

Result<Approval> FindApprovalIn(Session& session, const std::string& approval_id) {
  std::optional<Approval> approval;
  CAISSON_TRY_VOID(session.Run(kFindApproval, {approval_id}, [&](const Row& row) { approval = ReadApproval(row); }));
  if (!approval) return Error::NotFound("there is no approval " + Quoted(approval_id));
  CAISSON_TRY_VOID(session.Run(kAnswers, {approval_id}, [&](const Row& row) {
    approval->answers.push_back({row.Text(0), row.Int(1) != 0, row.Text(2), row.Int(3)});
  }));
  return *std::move(approval);
}

Error LeaseLost(const Lease& lease) {
  return Error::Conflict("job " + Quoted(lease.job_id) +
                         " is not held by this lease any more: it ended, or was given to another worker");
}

Error NoSuchJob(const std::string& job_id) { return Error::NotFound("there is no job " + Quoted(job_id)); }

}  // namespace caisson::store::sql
