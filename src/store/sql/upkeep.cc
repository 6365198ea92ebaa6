// Notes for the audit log, callbacks, and removal of old jobs.
#include "base/words.h"
#include "store/sql/rows.h"
#include "store/sql/sql_store.h"
#include "store/sql/steps.h"

namespace caisson::store::sql {
namespace {

constexpr char kNotes[] = "SELECT id, node, job_id, record FROM audit_notes WHERE node = $1 ORDER BY id LIMIT $2";
constexpr char kNotesOfJob[] = "SELECT 1 FROM audit_notes WHERE job_id = $1 LIMIT 1";
constexpr char kForgetNote[] = "DELETE FROM audit_notes WHERE id = $1";

constexpr char kDueCallbacks[] =
    "SELECT callbacks.job_id FROM callbacks JOIN jobs ON jobs.id = callbacks.job_id WHERE next_ms <= $1";
constexpr char kForgetCallback[] = "DELETE FROM callbacks WHERE job_id = $1";
constexpr char kPostponeCallback[] = "UPDATE callbacks SET tries = $2, next_ms = $3 WHERE job_id = $1";

// What belongs to a job goes with it: the tables say so (ON DELETE CASCADE).
constexpr char kRemove[] = "DELETE FROM jobs WHERE id = $1";
constexpr char kPurgeJobs[] =
    "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE finished_ms > 0 AND finished_ms < $1 "
    "ORDER BY finished_ms LIMIT $2 FOR UPDATE SKIP LOCKED)";
constexpr char kPurgeKeys[] =
    "DELETE FROM idempotency_keys WHERE (tenant, key) IN (SELECT tenant, key FROM idempotency_keys "
    "WHERE expires_ms > 0 AND expires_ms <= $1 ORDER BY expires_ms LIMIT $2 FOR UPDATE SKIP LOCKED)";

}  // namespace

Result<std::vector<AuditNote>> SqlStore::AuditNotes(const std::string& node, int64_t limit) {
  return Read<std::vector<AuditNote>>([&](Session& session, std::vector<AuditNote>& given) -> Status {
    CAISSON_TRY_VOID(session.Run(kNotes, {node, limit}, [&](const Row& row) {
      given.push_back({row.Text(0), row.Text(1), row.Text(2), row.Text(3)});
    }));
    return {};
  });
}

Result<bool> SqlStore::HasAuditNotes(const std::string& job_id) {
  return Read<bool>([&](Session& session, bool& given) -> Status {
    CAISSON_TRY(const int64_t found, session.Run(kNotesOfJob, {job_id}));
    given = found > 0;
    return {};
  });
}

Status SqlStore::ForgetAuditNotes(const std::vector<std::string>& ids) {
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    for (const std::string& id : ids) CAISSON_TRY_VOID(session.Post(kForgetNote, {id}));
    return {};
  });
}

Result<std::vector<Callback>> SqlStore::ClaimCallbacks(int64_t now_ms, int64_t until_ms, int64_t limit,
                                                       const std::vector<std::string>& without) {
  std::string due = kDueCallbacks;
  Values values = {now_ms, until_ms, limit};
  for (const std::string& tenant : without) {
    values.emplace_back(tenant);
    due += " AND jobs.tenant <> $" + std::to_string(values.size());
  }
  const std::string statement =
      "UPDATE callbacks SET next_ms = $2 WHERE job_id IN (" + due +
      " ORDER BY next_ms LIMIT $3 FOR UPDATE OF callbacks SKIP LOCKED) "
      "RETURNING job_id, url, tries, next_ms, (SELECT tenant FROM jobs WHERE jobs.id = callbacks.job_id)";
  return Write<std::vector<Callback>>(
      Durability::kPrompt, [&](Session& session, std::vector<Callback>& given) -> Status {
        CAISSON_TRY_VOID(session.RunOnce(statement, values, [&](const Row& row) {
          given.push_back({row.Text(0), row.Text(1), row.Int(2), row.Int(3), row.Text(4)});
        }));
        return {};
      });
}

Status SqlStore::SettleCallback(const std::string& job_id, int64_t tries, int64_t next_ms) {
  return database_->Write(Durability::kPrompt, [&](Session& session) -> Status {
    if (next_ms == 0) {
      CAISSON_TRY_VOID(session.Post(kForgetCallback, {job_id}));
    } else {
      CAISSON_TRY_VOID(session.Post(kPostponeCallback, {job_id, tries, next_ms}));
    }
    return {};
  });
}

Status SqlStore::Remove(const std::string& job_id, const AuditNote& note) {
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    CAISSON_TRY(const Job job, LockJob(session, job_id));
    if (!IsEnd(job.state)) {
      return Error::Conflict("job " + Quoted(job_id) + " is " + Name(job.state) + ": cancel it before it is removed");
    }
    CAISSON_TRY_VOID(InsertNote(session, note));
    CAISSON_TRY_VOID(session.Post(kRemove, {job_id}));
    return {};
  });
}

Result<int64_t> SqlStore::Purge(int64_t finished_before_ms, int64_t now_ms, int64_t limit) {
  // Durable, because the files of these jobs are removed next: a job must not reappear without them.
  return Write<int64_t>(Durability::kDurable, [&](Session& session, int64_t& given) -> Status {
    CAISSON_TRY(given, session.Run(kPurgeJobs, {finished_before_ms, limit}));
    CAISSON_TRY_VOID(session.Post(kPurgeKeys, {now_ms, limit}));
    return {};
  });
}

}  // namespace caisson::store::sql
