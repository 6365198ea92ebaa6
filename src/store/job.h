// The rows a store keeps, as the service sees them. Documents (requests, results, events) are text here: a store orders
// and keeps them but does not parse them. Times are milliseconds since 1970; 0 and empty strings stand for "none".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace caisson::store {

// A file of service/blobs.h.
struct Blob {
  std::string sha256;
  int64_t bytes = 0;
};

// queued → (awaiting_approval → queued) → admitted → running → one of the five ends
enum class JobState : uint8_t {
  kQueued,
  kAwaitingApproval,
  kAdmitted,  // leased and judged, about to run
  kRunning,
  kSucceeded,  // final states from here on (an operator can requeue a dead letter)
  kFailed,
  kRejected,
  kCancelled,
  kDeadLettered,
};
inline constexpr std::array<const char*, 9> kJobStateNames = {"queued",   "awaiting_approval", "admitted",
                                                              "running",  "succeeded",         "failed",
                                                              "rejected", "cancelled",         "dead_lettered"};
inline const char* Name(JobState state) { return kJobStateNames[static_cast<size_t>(state)]; }
inline bool IsEnd(JobState state) { return state >= JobState::kSucceeded; }

struct Job {
  std::string id;  // sorts by time of submission
  std::string tenant;
  std::string submitter;
  std::string request_id;
  std::string request;         // the document as it is run
  std::string request_digest;  // SHA-256 of its canonical form: what "the same body" means
  std::string idempotency_key;
  std::vector<std::pair<std::string, std::string>> labels;
  std::vector<Blob> blobs;  // blobs that the request refers to, kept as long as the job; only Submit reads this field
  std::string callback_url;
  int64_t priority = 0;  // among the tenant's own jobs; between tenants shares are equal
  int64_t max_attempts = 1;
  int64_t submitted_ms = 0;
  int64_t deadline_ms = 0;

  JobState state = JobState::kQueued;
  int64_t attempt = 1;
  int64_t not_before_ms = 0;
  std::string approval_id;  // the approval that was granted, or is waited for
  std::string lease_token;  // of the worker that holds the lease
  std::string worker;       // the same, by name
  int64_t lease_until_ms = 0;
  bool cancel_requested = false;
  std::string cancel_reason;

  int64_t started_ms = 0;   // of the last attempt
  int64_t finished_ms = 0;  // 0 until it ended
  std::string status;       // of the result: pass, fail, …
  std::string failure_class;
  std::string result;       // the document, or empty when `result_blob` names it
  std::string result_blob;  // SHA-256
};

// An attempt without a verdict.
struct Attempt {
  int64_t number = 1;
  std::string cause;  // infrastructure_error, lost_worker
  std::string error;
  std::string worker;
  int64_t started_ms = 0;
  int64_t ended_ms = 0;
};

// A lifecycle event. The store numbers those of one job from 1, without gaps.
struct Event {
  int64_t seq = 0;
  int64_t time_ms = 0;
  std::string type;
  std::string body;  // a JSON object: the members beyond the envelope
};

enum class ApprovalState : uint8_t { kPending, kGranted, kDenied, kExpired };
inline constexpr std::array<const char*, 4> kApprovalStateNames = {"pending", "granted", "denied", "expired"};
inline const char* Name(ApprovalState state) { return kApprovalStateNames[static_cast<size_t>(state)]; }

struct ApprovalAnswer {
  std::string approver;
  bool granted = false;
  std::string reason;
  int64_t time_ms = 0;
};

struct Approval {
  std::string id;
  std::string job_id;
  std::string tenant;
  std::string document;  // the question, as schemas/approval.schema.json spells it
  std::string plan_digest;
  int64_t quorum = 1;
  int64_t requested_ms = 0;
  int64_t expires_ms = 0;
  ApprovalState state = ApprovalState::kPending;
  bool used = false;  // a run began under it; it is valid for no other run
  std::vector<ApprovalAnswer> answers;
};

// A result that must be delivered to a callback URL.
struct Callback {
  std::string job_id;
  std::string url;
  int64_t tries = 0;
  int64_t next_ms = 0;
  std::string tenant;
};

// A record that must be written to the audit log of a node. The transaction that performs the action also stores the
// note, and the note stays until it is written: an action that did not happen leaves no note, and one that happened is
// not forgotten.
struct AuditNote {
  std::string id;    // sorts by time; empty: there is nothing to record
  std::string node;  // whose log it belongs in
  std::string job_id;
  std::string record;  // an audit record in its canonical form; its place in the chain is not set yet
};

}  // namespace caisson::store
