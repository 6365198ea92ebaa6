// Approvals. Every transaction that changes an approval first locks its job, so grants, denials, expiry and
// cancellation of one job are serialised.
#include "base/words.h"
#include "store/sql/rows.h"
#include "store/sql/sql_store.h"
#include "store/sql/steps.h"

namespace caisson::store::sql {
namespace {

static_assert(JobState::kAwaitingApproval == JobState{1} && Lane::kApproval == Lane{4});
constexpr char kAwait[] =
    "UPDATE jobs SET state = 1, lane = 4, approval_id = $3, lease_token = '', worker = '', lease_until_ms = 0, "
    "last_event = last_event + $4 WHERE id = $1 AND lease_token = $2 AND state < 4 RETURNING last_event, tenant";
constexpr char kInsertApproval[] =
    "INSERT INTO approvals (id, job_id, tenant, document, plan_digest, quorum, requested_ms, expires_ms, state, used) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0)";
constexpr char kInsertAnswer[] =
    "INSERT INTO approval_answers (approval_id, approver, ordinal, granted, reason, time_ms) "
    "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (approval_id, approver) DO NOTHING";
constexpr char kDecide[] = "UPDATE approvals SET state = $2 WHERE id = $1";
// Ready at once: a not_before time had passed when the job was claimed before.
constexpr char kQueueAgain[] =
    "UPDATE jobs SET state = 0, lane = 2, last_event = last_event + $2 WHERE id = $1 RETURNING last_event";
constexpr char kCountEvents[] = "UPDATE jobs SET last_event = last_event + $2 WHERE id = $1 RETURNING last_event";
constexpr char kExpired[] =
    "SELECT " CAISSON_APPROVAL_COLUMNS
    " FROM approvals WHERE state = 0 AND expires_ms > 0 AND expires_ms <= $1 ORDER BY expires_ms LIMIT $2";
constexpr char kHolds[] = "SELECT 1 FROM jobs WHERE id = $1 AND lease_token = $2 FOR UPDATE";
// 1 is ApprovalState::kGranted.
constexpr char kUse[] = "UPDATE approvals SET used = 1 WHERE id = $1 AND job_id = $2 AND state = 1 AND used = 0";
static_assert(ApprovalState::kGranted == ApprovalState{1});

// The approval, pending, with its job locked and waiting for it.
Result<Approval> LockPending(Session& session, const std::string& approval_id) {
  CAISSON_TRY(Approval approval, FindApprovalIn(session, approval_id));
  CAISSON_TRY(const Job job, LockJob(session, approval.job_id));
  CAISSON_TRY(approval, FindApprovalIn(session, approval_id));  // read again under the lock
  if (approval.state != ApprovalState::kPending) {
    return Error::Conflict("approval " + Quoted(approval_id) + " is " + Name(approval.state) + " already");
  }
  if (job.state != JobState::kAwaitingApproval || job.approval_id != approval_id || !job.lease_token.empty()) {
    return Error::Conflict("job " + Quoted(job.id) + " does not wait for approval " + Quoted(approval_id) +
                           " any more");
  }
  return approval;
}

Status EndWaiting(Session& session, const Approval& approval, ApprovalState state, const End& end) {
  CAISSON_TRY_VOID(session.Post(kDecide, {approval.id, Number(state)}));
  CAISSON_TRY_VOID(EndJob(session, {approval.job_id, ""}, end));
  return AddWaiting(session, {{approval.tenant, -1}});
}

}  // namespace

Status SqlStore::AwaitApproval(const Lease& lease, const Approval& approval, const std::vector<Event>& events) {
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    int64_t last_event = 0;
    std::string tenant;
    CAISSON_TRY(const int64_t waits,
                session.Run(kAwait, {lease.job_id, lease.token, approval.id, static_cast<int64_t>(events.size())},
                            [&](const Row& row) {
                              last_event = row.Int(0);
                              tenant = row.Text(1);
                            }));
    if (waits == 0) return LeaseLost(lease);
    CAISSON_TRY_VOID(
        session.Post(kInsertApproval, {approval.id, lease.job_id, tenant, approval.document, approval.plan_digest,
                                       approval.quorum, approval.requested_ms, approval.expires_ms}));
    CAISSON_TRY_VOID(InsertEvents(session, lease.job_id, last_event, events));
    return AddWaiting(session, {{tenant, 1}});
  });
}

Result<Approval> SqlStore::FindApproval(const std::string& approval_id) {
  return Read<Approval>([&](Session& session, Approval& given) -> Status {
    CAISSON_TRY(given, FindApprovalIn(session, approval_id));
    return {};
  });
}

Result<std::vector<Approval>> SqlStore::ListApprovals(const std::string& tenant, std::optional<ApprovalState> state,
                                                      int64_t limit) {
  return Read<std::vector<Approval>>([&](Session& session, std::vector<Approval>& given) -> Status {
    std::string statement = "SELECT id FROM approvals WHERE TRUE";
    Values values = {limit};
    if (state) statement += " AND state = " + std::to_string(Number(*state));
    if (!tenant.empty()) {
      statement += " AND tenant = $2";
      values.emplace_back(tenant);
    }
    statement += " ORDER BY requested_ms DESC, id DESC LIMIT $1";
    std::vector<std::string> ids;
    CAISSON_TRY_VOID(session.RunOnce(statement, values, [&](const Row& row) { ids.push_back(row.Text(0)); }));
    for (const std::string& id : ids) {
      CAISSON_TRY(Approval approval, FindApprovalIn(session, id));
      given.push_back(std::move(approval));
    }
    return {};
  });
}

Result<Approval> SqlStore::AnswerApproval(const std::string& approval_id, const ApprovalAnswer& answer, const End& end,
                                          const std::vector<Event>& events, const AuditNote& note) {
  return Write<Approval>(Durability::kDurable, [&](Session& session, Approval& given) -> Status {
    CAISSON_TRY(given, LockPending(session, approval_id));
    if (given.expires_ms > 0 && answer.time_ms >= given.expires_ms) {
      return Error::Conflict("approval " + Quoted(approval_id) + " has expired");
    }
    const auto ordinal = static_cast<int64_t>(given.answers.size()) + 1;
    CAISSON_TRY(const int64_t counted,
                session.Run(kInsertAnswer, {approval_id, answer.approver, ordinal, int64_t{answer.granted},
                                            answer.reason, answer.time_ms}));
    if (counted == 0) {
      return Error::Conflict(Quoted(answer.approver) + " has answered approval " + Quoted(approval_id) + " before");
    }
    CAISSON_TRY_VOID(InsertNote(session, note));
    given.answers.push_back(answer);
    // A denial closes the approval at once, so all earlier answers were grants.
    const bool decided = !answer.granted || ordinal >= given.quorum;
    if (decided) given.state = answer.granted ? ApprovalState::kGranted : ApprovalState::kDenied;

    int64_t last_event = 0;
    CAISSON_TRY_VOID(session.Run(decided && answer.granted ? kQueueAgain : kCountEvents,
                                 {given.job_id, static_cast<int64_t>(events.size())},
                                 [&](const Row& row) { last_event = row.Int(0); }));
    CAISSON_TRY_VOID(InsertEvents(session, given.job_id, last_event, events));
    if (!decided) return {};
    if (!answer.granted) return EndWaiting(session, given, ApprovalState::kDenied, end);
    CAISSON_TRY_VOID(session.Post(kDecide, {approval_id, Number(ApprovalState::kGranted)}));
    return {};
  });
}

Status SqlStore::ExpireApproval(const std::string& approval_id, const End& end, const AuditNote& note) {
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    CAISSON_TRY(const Approval approval, LockPending(session, approval_id));
    CAISSON_TRY_VOID(InsertNote(session, note));
    return EndWaiting(session, approval, ApprovalState::kExpired, end);
  });
}

Result<std::vector<Approval>> SqlStore::ExpiredApprovals(int64_t now_ms, int64_t limit) {
  return Read<std::vector<Approval>>([&](Session& session, std::vector<Approval>& given) -> Status {
    CAISSON_TRY_VOID(
        session.Run(kExpired, {now_ms, limit}, [&](const Row& row) { given.push_back(ReadApproval(row)); }));
    return {};
  });
}

Status SqlStore::UseApproval(const Lease& lease, const std::string& approval_id) {
  if (lease.token.empty()) return LeaseLost(lease);
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    CAISSON_TRY(const int64_t holds, session.Run(kHolds, {lease.job_id, lease.token}));
    if (holds == 0) return LeaseLost(lease);
    CAISSON_TRY(const int64_t used, session.Run(kUse, {approval_id, lease.job_id}));
    if (used > 0) return {};
    return Error::Conflict("approval " + Quoted(approval_id) + " is not a granted and unused one of job " +
                           Quoted(lease.job_id));
  });
}

}  // namespace caisson::store::sql
