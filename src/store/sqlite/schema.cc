#include "store/sqlite/schema.h"

namespace caisson::store::sqlite {

// `lane` is sql::Lane, `state` is JobState or ApprovalState. Each index is for one question, named above it.
const std::array<const char*, 1> kSchemaSteps = {R"sql(
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  submitter TEXT NOT NULL,
  request_id TEXT NOT NULL,
  request_digest TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  labels TEXT NOT NULL,
  callback_url TEXT NOT NULL,
  priority INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  submitted_ms INTEGER NOT NULL,
  deadline_ms INTEGER NOT NULL,
  state INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  not_before_ms INTEGER NOT NULL,
  approval_id TEXT NOT NULL,
  lease_token TEXT NOT NULL DEFAULT '',
  worker TEXT NOT NULL DEFAULT '',
  lease_until_ms INTEGER NOT NULL DEFAULT 0,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  cancel_reason TEXT NOT NULL DEFAULT '',
  started_ms INTEGER NOT NULL DEFAULT 0,
  finished_ms INTEGER NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT '',
  failure_class TEXT NOT NULL DEFAULT '',
  result_blob TEXT NOT NULL DEFAULT '',
  last_event INTEGER NOT NULL
) WITHOUT ROWID;
-- The next job of a tenant, and the tenants that have one.
CREATE INDEX jobs_ready ON jobs (tenant, priority DESC, id) WHERE lane = 2;
-- Those whose time has come.
CREATE INDEX jobs_delayed ON jobs (not_before_ms) WHERE lane = 3;
-- Those whose time is over, before and after that was noticed.
CREATE INDEX jobs_deadline ON jobs (deadline_ms) WHERE lane > 1 AND deadline_ms > 0;
CREATE INDEX jobs_overdue ON jobs (id) WHERE lane = 1;
-- Leases of a tenant, and those that ran out: as few as there are workers.
CREATE INDEX jobs_leased ON jobs (tenant, lease_until_ms) WHERE lease_token <> '';
CREATE INDEX jobs_finished ON jobs (finished_ms) WHERE finished_ms > 0;
-- Lists, newest first.
CREATE INDEX jobs_by_tenant ON jobs (tenant, id);
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_request ON jobs (request_id, id) WHERE request_id <> '';

CREATE TABLE requests (
  job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  body TEXT NOT NULL
);
CREATE TABLE results (
  job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  body TEXT NOT NULL
);
CREATE TABLE job_labels (
  job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (key, value, job_id)
) WITHOUT ROWID;
CREATE INDEX job_labels_of_job ON job_labels (job_id);
CREATE TABLE job_blobs (
  job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  sha256 TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (sha256, job_id)
) WITHOUT ROWID;
CREATE INDEX job_blobs_of_job ON job_blobs (job_id);
CREATE TABLE events (
  job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  time_ms INTEGER NOT NULL,
  type TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;
CREATE TABLE attempts (
  job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  number INTEGER NOT NULL,
  cause TEXT NOT NULL,
  error TEXT NOT NULL,
  worker TEXT NOT NULL,
  started_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  PRIMARY KEY (job_id, ordinal)
) WITHOUT ROWID;

CREATE TABLE idempotency_keys (
  tenant TEXT NOT NULL,
  key TEXT NOT NULL,
  request_digest TEXT NOT NULL,
  job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_of_job ON idempotency_keys (job_id);
CREATE INDEX idempotency_keys_expiring ON idempotency_keys (expires_ms) WHERE expires_ms > 0;

CREATE TABLE approvals (
  id TEXT PRIMARY KEY,
  job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  tenant TEXT NOT NULL,
  document TEXT NOT NULL,
  plan_digest TEXT NOT NULL,
  quorum INTEGER NOT NULL,
  requested_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  state INTEGER NOT NULL,
  used INTEGER NOT NULL
);
CREATE INDEX approvals_of_job ON approvals (job_id);
CREATE INDEX approvals_by_time ON approvals (requested_ms, id);
CREATE INDEX approvals_pending ON approvals (expires_ms) WHERE state = 0;
CREATE TABLE approval_answers (
  approval_id TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
  approver TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  granted INTEGER NOT NULL,
  reason TEXT NOT NULL,
  time_ms INTEGER NOT NULL,
  PRIMARY KEY (approval_id, approver)
) WITHOUT ROWID;

CREATE TABLE callbacks (
  job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  url TEXT NOT NULL,
  tries INTEGER NOT NULL,
  next_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX callbacks_due ON callbacks (next_ms);

-- How many jobs of a tenant wait; of all tenants under the empty name. The sum over the shards counts.
CREATE TABLE waiting (
  tenant TEXT NOT NULL,
  shard INTEGER NOT NULL,
  jobs INTEGER NOT NULL,
  PRIMARY KEY (tenant, shard)
) WITHOUT ROWID;
-- Whose turn it is: tenants in the order in which they were last served.
CREATE TABLE turns (
  tenant TEXT PRIMARY KEY,
  turn INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX turns_latest ON turns (turn);
)sql"};

}  // namespace caisson::store::sqlite
