// The store of jobs. One interface, two implementations (sqlite/, postgres/), one conformance suite
// (tests/conformance/store_test.cc).
//
// Every function is one transaction: when it returns success, all of what it says has happened, and when it returns an
// error, none. Functions marked DURABLE have reached the disk when they return; the others may be undone by a power
// cut, never by a crash of the service, and the reconciler repairs such a loss (a lost claim is a queued job).
//
// A worker owns a job by a lease: a token that the store gave it until a time. Everything a worker says of a job
// carries the token, and fails with kConflict once the lease was taken away. So at most one worker can end a job, and
// an ended job stays ended: a job has exactly one result, whichever processes die.
//
// Functions may be called from any thread. They block. Errors: kNotFound, kConflict, kExhausted as said, and kSystem
// when the database fails; kInvalid for text that is not UTF-8 without NUL. A lost PostgreSQL connection is opened
// again, and a call that had no effect is tried again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/job.h"

namespace caisson::store {

struct Lease {
  std::string job_id;
  std::string token;
};

// Jobs that wait are queued or awaiting approval, and have no lease.
struct QueueBounds {
  int64_t max_waiting = 0;  // of all tenants; 0: no bound
  int64_t max_waiting_per_tenant = 0;
};

struct Submitted {
  Job job;
  bool existed = false;  // the idempotency key was known, with the same body
};

struct ClaimOptions {
  std::string worker;
  int64_t now_ms = 0;
  int64_t lease_ms = 0;
  int64_t max_jobs = 1;
  int64_t tenant_limit = 0;                      // leased at once by one tenant's jobs, on all workers; 0: no limit
  std::map<std::string, int64_t> tenant_limits;  // for those named, instead
};

enum class LeaseFate : uint8_t {
  kKept,
  kLost,
  kCancelled
};  // kCancelled: the lease is kept, but the job must be stopped

// How a job ends.
struct End {
  JobState state = JobState::kFailed;
  std::string status;
  std::string failure_class;
  std::string result;  // one of the two, or neither for a dead letter without any
  std::string result_blob;
  std::vector<Blob> blobs;  // what the result refers to: kept as long as the job
  int64_t now_ms = 0;
  std::vector<Event> events;
};

struct JobFilter {
  std::string tenant;  // empty: all
  std::vector<JobState> states;
  std::string request_id;
  std::string label_key, label_value;
  std::string before_id;  // cursor: older than this one; empty: from the newest
  int64_t limit = 100;
};

struct Counts {
  std::map<std::string, int64_t> by_state;  // names of states
  std::map<std::string, int64_t> waiting_by_tenant;
  std::map<std::string, int64_t> leased_by_tenant;
  int64_t oldest_queued_ms = 0;  // when the oldest that could run was submitted; 0: none
  int64_t approvals_pending = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // DURABLE. With an idempotency key that the tenant used before: the same digest returns the earlier job, another
  // digest is kConflict. A full queue: kExhausted; on PostgreSQL a bound can be overshot by as many jobs as are
  // submitted in the same moment, because an exact count would make them wait for each other's fsync. The key is
  // remembered until `key_expires_ms` (0: without end), or until its job is removed.
  virtual Result<Submitted> Submit(const Job& job, const QueueBounds& bounds, int64_t key_expires_ms,
                                   const std::vector<Event>& events) = 0;

  virtual Result<Job> Find(const std::string& job_id) = 0;  // kNotFound
  // Newest first, without requests and results.
  virtual Result<std::vector<Job>> List(const JobFilter& filter) = 0;
  virtual Result<std::vector<Attempt>> Attempts(const std::string& job_id) = 0;
  // In order, from after `after_seq` on.
  virtual Result<std::vector<Event>> Events(const std::string& job_id, int64_t after_seq, int64_t limit) = 0;
  virtual Result<Counts> Count(int64_t now_ms) = 0;

  // Takes queued jobs that may begin (not_before, deadline not passed), each with a lease of its own. Tenants take
  // turns: the one with the fewest leases first, then the one served longest ago; within a tenant by priority, then by
  // age. The jobs come back whole, still in state queued, and with `lease_token`; `cancel_requested` is still set for a
  // job that was being cancelled when its last worker was lost.
  virtual Result<std::vector<Job>> Claim(const ClaimOptions& options) = 0;
  // Prolongs leases; the fates are in their order.
  virtual Result<std::vector<LeaseFate>> Renew(const std::vector<Lease>& leases, int64_t until_ms) = 0;
  // To admitted or running. kConflict when the lease is lost.
  virtual Status Advance(const Lease& lease, JobState state, int64_t now_ms, const std::vector<Event>& events) = 0;
  virtual Status AppendEvents(const std::string& job_id, const std::vector<Event>& events) = 0;
  // DURABLE. The job ended; the lease is gone. Where the job has a callback URL, a callback is due at once.
  virtual Status Finish(const Lease& lease, const End& end) = 0;
  // DURABLE. The attempt came to nothing: queued again for the next one, not before a time.
  virtual Status Retry(const Lease& lease, const Attempt& ended, int64_t not_before_ms,
                       const std::vector<Event>& events) = 0;
  // DURABLE. The attempt came to nothing and no other follows: dead_lettered. `end.state` says so.
  virtual Status GiveUp(const Lease& lease, const Attempt& ended, const End& end) = 0;
  // Back to queued without counting an attempt: the worker stops before it began.
  virtual Status Release(const Lease& lease) = 0;
  // DURABLE. As Retry, but the attempt does not count: what failed has nothing to do with the job.
  virtual Status Postpone(const Lease& lease, int64_t not_before_ms, const std::vector<Event>& events) = 0;

  // DURABLE. Ends a job that no worker holds (with `end`), or asks its worker to stop. Returns the job afterwards;
  // an ended job is kConflict. Repeating it changes nothing, and leaves no second note.
  virtual Result<Job> Cancel(const std::string& job_id, const std::string& reason, const End& end,
                             const AuditNote& note = {}) = 0;
  // DURABLE. A dead letter is queued again as attempt 1, its history kept, with its original time allowance and without
  // its approval; any other state is kConflict.
  virtual Result<Job> Requeue(const std::string& job_id, int64_t now_ms, const std::vector<Event>& events) = 0;

  // For the reconciler: leases of all workers that expired before `now_ms`, with their tokens; and jobs that wait
  // (queued, unleased, or awaiting approval) past their deadline: `TakeOverdue` leases those, so that they can be
  // ended.
  virtual Result<std::vector<Job>> LapsedLeases(int64_t now_ms, int64_t limit) = 0;
  virtual Result<std::vector<Job>> TakeOverdue(const ClaimOptions& options) = 0;

  // DURABLE. The job waits for people; the lease is gone.
  virtual Status AwaitApproval(const Lease& lease, const Approval& approval, const std::vector<Event>& events) = 0;
  virtual Result<Approval> FindApproval(const std::string& approval_id) = 0;
  virtual Result<std::vector<Approval>> ListApprovals(const std::string& tenant, std::optional<ApprovalState> state,
                                                      int64_t limit) = 0;
  // DURABLE. One person's answer. The last grant of the quorum queues the job again; a denial ends it with `end`.
  // kConflict: decided already, expired, cancelled, or this person answered before.
  virtual Result<Approval> AnswerApproval(const std::string& approval_id, const ApprovalAnswer& answer, const End& end,
                                          const std::vector<Event>& events, const AuditNote& note = {}) = 0;
  // DURABLE. No approver answered in time: the job ends with `end`. kConflict when it was decided meanwhile.
  virtual Status ExpireApproval(const std::string& approval_id, const End& end, const AuditNote& note = {}) = 0;
  virtual Result<std::vector<Approval>> ExpiredApprovals(int64_t now_ms, int64_t limit) = 0;
  // DURABLE. A run begins under the approval: kConflict when one did before, or it is not a granted one of this job.
  virtual Status UseApproval(const Lease& lease, const std::string& approval_id) = 0;

  // Notes that are not in the node's audit log yet, oldest first; whether a job has such notes, of any node; marks
  // notes as written (DURABLE).
  virtual Result<std::vector<AuditNote>> AuditNotes(const std::string& node, int64_t limit) = 0;
  virtual Result<bool> HasAuditNotes(const std::string& job_id) = 0;
  virtual Status ForgetAuditNotes(const std::vector<std::string>& ids) = 0;

  // Callbacks that are due, each kept from other workers until `until_ms`; none of the tenants in `without`.
  virtual Result<std::vector<Callback>> ClaimCallbacks(int64_t now_ms, int64_t until_ms, int64_t limit,
                                                       const std::vector<std::string>& without = {}) = 0;
  // Delivered or given up (`next_ms` 0), or to be tried again at `next_ms`.
  virtual Status SettleCallback(const std::string& job_id, int64_t tries, int64_t next_ms) = 0;

  // DURABLE. Removes an ended job with everything that belongs to it; kConflict if it has not ended.
  virtual Status Remove(const std::string& job_id, const AuditNote& note = {}) = 0;
  // DURABLE. Removes jobs that ended before a time, and idempotency keys that expired; gives the number of jobs.
  virtual Result<int64_t> Purge(int64_t finished_before_ms, int64_t now_ms, int64_t limit) = 0;
  // Of these blobs, those that some job still refers to; of the tenant's jobs only, unless it is empty.
  virtual Result<std::vector<std::string>> BlobsInUse(const std::vector<std::string>& sha256,
                                                      const std::string& tenant = "") = 0;

  // Whether the database answers, for /readyz; and what it is, for people: "sqlite 3.40.1".
  virtual Status Ping() = 0;
  virtual std::string Description() const = 0;
};

}  // namespace caisson::store
