#include "store/sql/schema.h"

namespace caisson::store::sql {
namespace {

// `lane` is sql::Lane, `state` is JobState or ApprovalState. Each index serves one query, named above it.
constexpr const char* kSteps[] = {R"sql(
CREATE TABLE jobs (
  id {text} PRIMARY KEY,
  tenant {text} NOT NULL,
  submitter {text} NOT NULL,
  request_id {text} NOT NULL,
  request_digest {text} NOT NULL,
  idempotency_key {text} NOT NULL,
  labels {text} NOT NULL,
  callback_url {text} NOT NULL,
  priority BIGINT NOT NULL,
  max_attempts BIGINT NOT NULL,
  submitted_ms BIGINT NOT NULL,
  deadline_ms BIGINT NOT NULL,
  state BIGINT NOT NULL,
  lane BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  not_before_ms BIGINT NOT NULL,
  approval_id {text} NOT NULL,
  lease_token {text} NOT NULL DEFAULT '',
  worker {text} NOT NULL DEFAULT '',
  lease_until_ms BIGINT NOT NULL DEFAULT 0,
  cancel_requested BIGINT NOT NULL DEFAULT 0,
  cancel_reason {text} NOT NULL DEFAULT '',
  started_ms BIGINT NOT NULL DEFAULT 0,
  finished_ms BIGINT NOT NULL DEFAULT 0,
  status {text} NOT NULL DEFAULT '',
  failure_class {text} NOT NULL DEFAULT '',
  result_blob {text} NOT NULL DEFAULT '',
  last_event BIGINT NOT NULL
) {by_key};
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
  job_id {text} PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  body {text} NOT NULL
);
CREATE TABLE results (
  job_id {text} PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  body {text} NOT NULL
);
CREATE TABLE job_labels (
  job_id {text} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  key {text} NOT NULL,
  value {text} NOT NULL,
  PRIMARY KEY (key, value, job_id)
) {by_key};
CREATE INDEX job_labels_of_job ON job_labels (job_id);
CREATE TABLE job_blobs (
  job_id {text} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  sha256 {text} NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (sha256, job_id)
) {by_key};
CREATE INDEX job_blobs_of_job ON job_blobs (job_id);
CREATE TABLE events (
  job_id {text} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  seq BIGINT NOT NULL,
  time_ms BIGINT NOT NULL,
  type {text} NOT NULL,
  body {text} NOT NULL,
  PRIMARY KEY (job_id, seq)
) {by_key};
CREATE TABLE attempts (
  job_id {text} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  ordinal BIGINT NOT NULL,
  number BIGINT NOT NULL,
  cause {text} NOT NULL,
  error {text} NOT NULL,
  worker {text} NOT NULL,
  started_ms BIGINT NOT NULL,
  ended_ms BIGINT NOT NULL,
  PRIMARY KEY (job_id, ordinal)
) {by_key};

CREATE TABLE idempotency_keys (
  tenant {text} NOT NULL,
  key {text} NOT NULL,
  request_digest {text} NOT NULL,
  job_id {text} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
  expires_ms BIGINT NOT NULL,
  PRIMARY KEY (tenant, key)
) {by_key};
CREATE INDEX idempotency_keys_of_job ON idempotency_keys (job_id);
CREATE INDEX idempotency_keys_expiring ON idempotency_keys (expires_ms) WHERE expires_ms > 0;

CREATE TABLE approvals (
  id {text} PRIMARY KEY,
  job_id {text} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  tenant {text} NOT NULL,
  document {text} NOT NULL,
  plan_digest {text} NOT NULL,
  quorum BIGINT NOT NULL,
  requested_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  state BIGINT NOT NULL,
  used BIGINT NOT NULL
);
CREATE INDEX approvals_of_job ON approvals (job_id);
CREATE INDEX approvals_by_time ON approvals (requested_ms, id);
CREATE INDEX approvals_pending ON approvals (expires_ms) WHERE state = 0;
CREATE TABLE approval_answers (
  approval_id {text} NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
  approver {text} NOT NULL,
  ordinal BIGINT NOT NULL,
  granted BIGINT NOT NULL,
  reason {text} NOT NULL,
  time_ms BIGINT NOT NULL,
  PRIMARY KEY (approval_id, approver)
) {by_key};

CREATE TABLE callbacks (
  job_id {text} PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  url {text} NOT NULL,
  tries BIGINT NOT NULL,
  next_ms BIGINT NOT NULL
) {by_key};
CREATE INDEX callbacks_due ON callbacks (next_ms);

-- How many jobs of a tenant wait; of all tenants under the empty name. The sum over the shards counts.
CREATE TABLE waiting (
  tenant {text} NOT NULL,
  shard BIGINT NOT NULL,
  jobs BIGINT NOT NULL,
  PRIMARY KEY (tenant, shard)
) {by_key};
-- Whose turn it is: tenants in the order in which they were last served.
CREATE TABLE turns (
  tenant {text} PRIMARY KEY,
  turn BIGINT NOT NULL
) {by_key};
CREATE INDEX turns_latest ON turns (turn);
)sql",
                                  R"sql(
-- What is true and not in an audit log yet. Not tied to its job: the removal of a job is recorded too.
CREATE TABLE audit_notes (
  id {text} PRIMARY KEY,
  node {text} NOT NULL,
  job_id {text} NOT NULL,
  record {text} NOT NULL
);
CREATE INDEX audit_notes_of_node ON audit_notes (node, id);
CREATE INDEX audit_notes_of_job ON audit_notes (job_id);
)sql"};

std::string Replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + by.size())) {
    text.replace(at, word.size(), by);
  }
  return text;
}

}  // namespace

std::vector<std::string> SchemaSteps(const SchemaWords& words) {
  std::vector<std::string> steps;
  for (const char* step : kSteps) {
    steps.push_back(Replaced(Replaced(step, "{text}", words.text), "{by_key}", words.by_key));
  }
  return steps;
}

}  // namespace caisson::store::sql
