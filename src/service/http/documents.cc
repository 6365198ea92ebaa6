#include "service/http/documents.h"

#include <algorithm>

#include "base/clock.h"

namespace caisson::service::http {

using nlohmann::json;

namespace {

constexpr size_t kMaxPageBytes = size_t{2} << 20;
constexpr size_t kBytesOfAJob = 500;

void AddText(json& document, const char* name, const std::string& text) {
  if (!text.empty()) document[name] = text;
}
void AddTime(json& document, const char* name, int64_t time_ms) {
  if (time_ms != 0) document[name] = UtcTime(time_ms);
}

}  // namespace

json ToJson(const store::Job& job) {
  json document = {{"job_id", job.id},
                   {"tenant", job.tenant},
                   {"submitter", job.submitter},
                   {"request_id", job.request_id},
                   {"state", store::Name(job.state)},
                   {"attempt", job.attempt},
                   {"max_attempts", job.max_attempts},
                   {"priority", job.priority},
                   {"submitted_at", UtcTime(job.submitted_ms)},
                   {"cancel_requested", job.cancel_requested}};
  document["labels"] = json::object();
  for (const auto& [key, value] : job.labels) document["labels"][key] = value;
  AddText(document, "idempotency_key", job.idempotency_key);
  AddText(document, "callback_url", job.callback_url);
  AddText(document, "approval_id", job.approval_id);
  AddText(document, "worker", job.worker);
  AddText(document, "cancel_reason", job.cancel_reason);
  AddText(document, "status", job.status);
  AddText(document, "failure_class", job.failure_class);
  AddTime(document, "deadline", job.deadline_ms);
  AddTime(document, "not_before", job.not_before_ms);
  AddTime(document, "started_at", job.started_ms);
  AddTime(document, "finished_at", job.finished_ms);
  return document;
}

json ToJson(const JobDetails& details) {
  json document = ToJson(details.job);
  document["attempts"] = json::array();
  for (const store::Attempt& attempt : details.attempts) {
    json item = {{"attempt", attempt.number}, {"cause", attempt.cause}, {"error", attempt.error}};
    AddText(item, "worker", attempt.worker);
    AddTime(item, "started_at", attempt.started_ms);
    AddTime(item, "ended_at", attempt.ended_ms);
    document["attempts"].push_back(std::move(item));
  }
  return document;
}

json ToJson(const store::Approval& approval) {
  json document = {{"approval_id", approval.id},
                   {"job_id", approval.job_id},
                   {"tenant", approval.tenant},
                   {"state", store::Name(approval.state)},
                   {"plan_digest", approval.plan_digest},
                   {"quorum", approval.quorum},
                   {"requested_at", UtcTime(approval.requested_ms)},
                   {"expires_at", UtcTime(approval.expires_ms)},
                   {"used", approval.used}};
  document["answers"] = json::array();
  for (const store::ApprovalAnswer& answer : approval.answers) {
    json item = {{"approver", answer.approver},
                 {"decision", answer.granted ? "granted" : "denied"},
                 {"decided_at", UtcTime(answer.time_ms)}};
    AddText(item, "reason", answer.reason);
    document["answers"].push_back(std::move(item));
  }
  document["question"] = json::parse(approval.document, nullptr, false);
  return document;
}

json ToJson(const store::Event& event, const std::string& job_id, const std::string& request_id) {
  json document = json::parse(event.body, nullptr, false);
  if (!document.is_object()) document = json::object();
  document["schema_version"] = 1;
  document["seq"] = event.seq;
  document["time"] = UtcTime(event.time_ms);
  document["run_id"] = job_id;
  document["request_id"] = request_id;
  document["type"] = event.type;
  return document;
}

json PageOf(const std::vector<store::Job>& jobs, size_t limit) {
  json page = {{"jobs", json::array()}};
  const size_t wanted = std::min(limit, jobs.size());
  size_t count = 0, bytes = 0;
  // A long page is cut; its cursor says where the next one begins.
  for (; count < wanted && bytes < kMaxPageBytes; ++count) {
    for (const auto& [key, value] : jobs[count].labels) bytes += key.size() + value.size();
    bytes += kBytesOfAJob + jobs[count].callback_url.size();
    page["jobs"].push_back(ToJson(jobs[count]));
  }
  if (jobs.size() > count && count > 0) page["next_cursor"] = jobs[count - 1].id;
  return page;
}

}  // namespace caisson::service::http
