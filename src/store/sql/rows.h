// How rows of the tables become the structs of store/job.h. The lists of columns and the functions that read them are
// next to each other: change both together.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/job.h"
#include "store/sql/session.h"

namespace caisson::store::sql {

// The part of the queue in which a job waits. The queue's indexes use it, so that claiming never reads jobs that it
// cannot take. The claims themselves move overdue and due jobs between lanes, once each.
enum class Lane : uint8_t {
  kNone,      // leased or ended: it does not wait
  kOverdue,   // past its deadline
  kReady,     // may begin
  kDelayed,   // queued, not before a time
  kApproval,  // for people
};
inline int64_t Number(Lane lane) { return static_cast<int64_t>(lane); }
inline int64_t Number(JobState state) { return static_cast<int64_t>(state); }
inline int64_t Number(ApprovalState state) { return static_cast<int64_t>(state); }

// Of the table jobs, in the order in which ReadJob reads them. Requests and results have tables of their own, because
// SQLite writes a whole row anew for each lease and state.
#define CAISSON_JOB_COLUMNS                                                                                    \
  "id, tenant, submitter, request_id, request_digest, idempotency_key, labels, callback_url, priority, "       \
  "max_attempts, submitted_ms, deadline_ms, state, attempt, not_before_ms, approval_id, lease_token, worker, " \
  "lease_until_ms, cancel_requested, cancel_reason, started_ms, finished_ms, status, failure_class, result_blob"
inline constexpr int kJobColumns = 26;
Job ReadJob(const Row& row);

#define CAISSON_APPROVAL_COLUMNS \
  "id, job_id, tenant, document, plan_digest, quorum, requested_ms, expires_ms, state, used"
Approval ReadApproval(const Row& row);

// Labels are one column of the job, and a table of their own to find jobs by them. "1:a3:one" is {a: one}.
using Labels = std::vector<std::pair<std::string, std::string>>;
std::string EncodeLabels(const Labels& labels);
Labels DecodeLabels(std::string_view text);

}  // namespace caisson::store::sql
