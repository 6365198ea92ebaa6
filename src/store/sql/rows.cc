#include "store/sql/rows.h"

#include <charconv>

#include "base/check.h"

namespace caisson::store::sql {
namespace {

// Takes "3:one" off the front of `text`.
bool TakeCounted(std::string_view* text, std::string* word) {
  size_t length = 0;
  const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), length);
  if (fault != std::errc() || end == text->data() + text->size() || *end != ':') return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()) + 1);
  if (length > text->size()) return false;
  word->assign(text->substr(0, length));
  text->remove_prefix(length);
  return true;
}

}  // namespace

Job ReadJob(const Row& row) {
  int column = 0;
  const auto text = [&] { return row.Text(column++); };
  const auto number = [&] { return row.Int(column++); };
  Job job;
  job.id = text();
  job.tenant = text();
  job.submitter = text();
  job.request_id = text();
  job.request_digest = text();
  job.idempotency_key = text();
  job.labels = DecodeLabels(text());
  job.callback_url = text();
  job.priority = number();
  job.max_attempts = number();
  job.submitted_ms = number();
  job.deadline_ms = number();
  job.state = static_cast<JobState>(number());
  job.attempt = number();
  job.not_before_ms = number();
  job.approval_id = text();
  job.lease_token = text();
  job.worker = text();
  job.lease_until_ms = number();
  job.cancel_requested = number() != 0;
  job.cancel_reason = text();
  job.started_ms = number();
  job.finished_ms = number();
  job.status = text();
  job.failure_class = text();
  job.result_blob = text();
  CAISSON_CHECK(column == kJobColumns);
  return job;
}

Approval ReadApproval(const Row& row) {
  Approval approval;
  approval.id = row.Text(0);
  approval.job_id = row.Text(1);
  approval.tenant = row.Text(2);
  approval.document = row.Text(3);
  approval.plan_digest = row.Text(4);
  approval.quorum = row.Int(5);
  approval.requested_ms = row.Int(6);
  approval.expires_ms = row.Int(7);
  approval.state = static_cast<ApprovalState>(row.Int(8));
  approval.used = row.Int(9) != 0;
  return approval;
}

std::string EncodeLabels(const Labels& labels) {
  std::string text;
  for (const auto& [key, value] : labels) {
    text += std::to_string(key.size()) + ":" + key + std::to_string(value.size()) + ":" + value;
  }
  return text;
}

Labels DecodeLabels(std::string_view text) {
  Labels labels;
  std::pair<std::string, std::string> label;
  while (TakeCounted(&text, &label.first) && TakeCounted(&text, &label.second)) labels.push_back(label);
  return labels;
}

}  // namespace caisson::store::sql
