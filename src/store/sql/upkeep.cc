// Callbacks, and making room.
#include "base/words.h"
#include "store/sql/rows.h"
#include "store/sql/sql_store.h"
#include "store/sql/steps.h"

namespace caisson::store::sql {
namespace {

constexpr char kClaimCallbacks[] =
    "UPDATE callbacks SET next_ms = $2 WHERE job_id IN "
    "(SELECT job_id FROM callbacks WHERE next_ms <= $1 ORDER BY next_ms LIMIT $3 FOR UPDATE SKIP LOCKED) "
    "RETURNING job_id, url, tries, next_ms";
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

Result<std::vector<Callback>> SqlStore::ClaimCallbacks(int64_t now_ms, int64_t until_ms, int64_t limit) {
  return Write<std::vector<Callback>>(
      Durability::kPrompt, [&](Session& session, std::vector<Callback>& given) -> Status {
        CAISSON_TRY_VOID(session.Run(kClaimCallbacks, {now_ms, until_ms, limit}, [&](const Row& row) {
          given.push_back({row.Text(0), row.Text(1), row.Int(2), row.Int(3)});
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

Status SqlStore::Remove(const std::string& job_id) {
  return database_->Write(Durability::kDurable, [&](Session& session) -> Status {
    CAISSON_TRY(const Job job, LockJob(session, job_id));
    if (!IsEnd(job.state)) {
      return Error::Conflict("job " + Quoted(job_id) + " is " + Name(job.state) + ": cancel it before it is removed");
    }
    CAISSON_TRY_VOID(session.Post(kRemove, {job_id}));
    return {};
  });
}

Result<int64_t> SqlStore::Purge(int64_t finished_before_ms, int64_t now_ms, int64_t limit) {
  // Durable, because the files of these jobs go next: a job must not come back without them.
  return Write<int64_t>(Durability::kDurable, [&](Session& session, int64_t& given) -> Status {
    CAISSON_TRY(given, session.Run(kPurgeJobs, {finished_before_ms, limit}));
    CAISSON_TRY_VOID(session.Post(kPurgeKeys, {now_ms, limit}));
    return {};
  });
}

}  // namespace caisson::store::sql
