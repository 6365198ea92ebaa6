#include "store/sql/rows.h"
#include "store/sql/sql_store.h"
#include "store/sql/steps.h"

namespace caisson::store::sql {
namespace {

constexpr char kAttempts[] =
    "SELECT number, cause, error, worker, started_ms, ended_ms FROM attempts WHERE job_id = $1 ORDER BY ordinal";
constexpr char kEvents[] =
    "SELECT seq, time_ms, type, body FROM events WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3";

constexpr char kCountStates[] = "SELECT state, count(*) FROM jobs GROUP BY state";
constexpr char kCountWaiting[] =
    "SELECT tenant, sum(jobs) FROM waiting WHERE tenant <> '' GROUP BY tenant HAVING sum(jobs) <> 0";
constexpr char kCountLeased[] = "SELECT tenant, count(*) FROM jobs WHERE lease_token <> '' GROUP BY tenant";
constexpr char kCountPending[] = "SELECT count(*) FROM approvals WHERE state = 0";
// Walks the queued jobs by age; it skips only the few that are leased, delayed or overdue.
constexpr char kOldestQueued[] =
    "SELECT submitted_ms FROM jobs WHERE state = 0 AND (lane = 2 OR (lane = 3 AND not_before_ms <= $1)) "
    "AND (deadline_ms = 0 OR deadline_ms > $1) ORDER BY id LIMIT 1";
static_assert(Lane::kReady == Lane{2} && Lane::kDelayed == Lane{3});

constexpr char kBlobInUse[] = "SELECT 1 FROM job_blobs WHERE sha256 = $1 LIMIT 1";
constexpr char kBlobInUseOf[] =
    "SELECT 1 FROM job_blobs JOIN jobs ON jobs.id = job_blobs.job_id WHERE sha256 = $1 AND tenant = $2 LIMIT 1";

// The statement of a list is put together from these pieces, so that each filter has its index. States are numbers of
// our own enum.
std::string ListStatement(const JobFilter& filter, Values* values) {
  const auto parameter = [values](std::string_view value) {
    values->push_back(value);
    return "$" + std::to_string(values->size());
  };
  std::string where = "TRUE";
  if (!filter.tenant.empty()) where += " AND tenant = " + parameter(filter.tenant);
  if (!filter.request_id.empty()) where += " AND request_id <> '' AND request_id = " + parameter(filter.request_id);
  if (!filter.before_id.empty()) where += " AND id < " + parameter(filter.before_id);
  if (filter.states.size() == 1) where += " AND state = " + std::to_string(Number(filter.states.front()));
  if (filter.states.size() > 1) {
    std::string numbers;
    for (const JobState state : filter.states) numbers += (numbers.empty() ? "" : ", ") + std::to_string(Number(state));
    where += " AND state IN (" + numbers + ")";
  }
  if (!filter.label_key.empty()) {
    // One after the other: the order of evaluation within one expression is the compiler's.
    where += " AND id IN (SELECT job_id FROM job_labels WHERE key = " + parameter(filter.label_key);
    where += " AND value = " + parameter(filter.label_value) + ")";
  }
  values->push_back(filter.limit);
  return "SELECT " CAISSON_JOB_COLUMNS " FROM jobs WHERE " + where + " ORDER BY id DESC LIMIT $" +
         std::to_string(values->size());
}

}  // namespace

Result<Job> SqlStore::Find(const std::string& job_id) {
  CAISSON_TRY(std::optional<Job> job,
              Read<std::optional<Job>>([&](Session& session, std::optional<Job>& given) -> Status {
                CAISSON_TRY(given, FindWhole(session, job_id));
                return {};
              }));
  if (!job) return NoSuchJob(job_id);
  return *std::move(job);
}

Result<std::vector<Job>> SqlStore::List(const JobFilter& filter) {
  return Read<std::vector<Job>>([&](Session& session, std::vector<Job>& given) -> Status {
    Values values;
    const std::string statement = ListStatement(filter, &values);
    CAISSON_TRY_VOID(session.RunOnce(statement, values, [&](const Row& row) { given.push_back(ReadJob(row)); }));
    return {};
  });
}

Result<std::vector<Attempt>> SqlStore::Attempts(const std::string& job_id) {
  return Read<std::vector<Attempt>>([&](Session& session, std::vector<Attempt>& given) -> Status {
    CAISSON_TRY_VOID(session.Run(kAttempts, {job_id}, [&](const Row& row) {
      given.push_back({row.Int(0), row.Text(1), row.Text(2), row.Text(3), row.Int(4), row.Int(5)});
    }));
    return {};
  });
}

Result<std::vector<Event>> SqlStore::Events(const std::string& job_id, int64_t after_seq, int64_t limit) {
  return Read<std::vector<Event>>([&](Session& session, std::vector<Event>& given) -> Status {
    CAISSON_TRY_VOID(session.Run(kEvents, {job_id, after_seq, limit}, [&](const Row& row) {
      given.push_back({row.Int(0), row.Int(1), row.Text(2), row.Text(3)});
    }));
    return {};
  });
}

Result<Counts> SqlStore::Count(int64_t now_ms) {
  return Read<Counts>([&](Session& session, Counts& given) -> Status {
    for (const char* name : kJobStateNames) given.by_state[name] = 0;
    CAISSON_TRY_VOID(session.Run(kCountStates, {}, [&](const Row& row) {
      given.by_state[Name(static_cast<JobState>(row.Int(0)))] = row.Int(1);
    }));
    CAISSON_TRY_VOID(
        session.Run(kCountWaiting, {}, [&](const Row& row) { given.waiting_by_tenant[row.Text(0)] = row.Int(1); }));
    CAISSON_TRY_VOID(
        session.Run(kCountLeased, {}, [&](const Row& row) { given.leased_by_tenant[row.Text(0)] = row.Int(1); }));
    CAISSON_TRY_VOID(
        session.Run(kOldestQueued, {now_ms}, [&](const Row& row) { given.oldest_queued_ms = row.Int(0); }));
    CAISSON_TRY_VOID(session.Run(kCountPending, {}, [&](const Row& row) { given.approvals_pending = row.Int(0); }));
    return {};
  });
}

Result<std::vector<std::string>> SqlStore::BlobsInUse(const std::vector<std::string>& sha256,
                                                      const std::string& tenant) {
  return Read<std::vector<std::string>>([&](Session& session, std::vector<std::string>& given) -> Status {
    for (const std::string& blob : sha256) {
      CAISSON_TRY(const int64_t uses,
                  tenant.empty() ? session.Run(kBlobInUse, {blob}) : session.Run(kBlobInUseOf, {blob, tenant}));
      if (uses > 0) given.push_back(blob);
    }
    return {};
  });
}

}  // namespace caisson::store::sql
