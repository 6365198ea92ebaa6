#include "service/documents.h"

#include <sys/random.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "audit/audit_record.h"
#include "base/check.h"
#include "base/clock.h"
#include "verify/digest.h"
#include "verify/result.h"

namespace caisson::service {

using nlohmann::json;

namespace {

std::string RandomHexOf(size_t bytes) {
  unsigned char random[32];
  CAISSON_CHECK(bytes <= sizeof(random));
  CAISSON_CHECK(::getrandom(random, bytes, 0) == static_cast<ssize_t>(bytes));
  std::string hex;
  for (size_t i = 0; i < bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", random[i]);
    hex += digits;
  }
  return hex;
}

json JobMessage(const store::Job& job, const std::string& document, const verify::RetryPolicy& retry) {
  json request = json::parse(document);
  request["request_id"] = job.request_id;
  request.erase("idempotency_key");
  json message = {{"schema_version", 1},
                  {"kind", "job"},
                  {"message_id", job.id + "." + std::to_string(job.attempt)},
                  {"job_id", job.id},
                  {"tenant", job.tenant},
                  {"submitted_at", UtcTime(job.submitted_ms)},
                  // A job without a key never equals another.
                  {"idempotency_key", job.idempotency_key.empty() ? job.id : job.idempotency_key},
                  {"attempt", job.attempt},
                  {"max_attempts", job.max_attempts},
                  {"retry",
                   {{"initial_delay_ms", retry.initial_delay_ms},
                    {"multiplier", retry.multiplier},
                    {"max_delay_ms", retry.max_delay_ms},
                    {"jitter", retry.jitter}}},
                  {"priority", job.priority},
                  {"request", std::move(request)}};
  if (job.deadline_ms != 0) message["deadline"] = UtcTime(job.deadline_ms);
  return message;
}

}  // namespace

std::string Dump(const json& value) { return value.dump(-1, ' ', true, json::error_handler_t::replace); }

std::string RandomHex() { return RandomHexOf(16); }

std::string NewJobId(int64_t now_ms) {
  char time[16];
  std::snprintf(time, sizeof(time), "%012llx", static_cast<unsigned long long>(now_ms));
  return time + RandomHexOf(10);
}

std::string RequestDigest(json body) {
  body.erase("idempotency_key");
  return verify::Sha256Hex(body.dump());  // `json` sorts its keys
}

std::string PlanDigest(const std::string& request_digest, const verify::Admitted& admitted) {
  json commands = json::array();
  for (const policy::PlannedCommand& command : admitted.plan.commands) {
    json argv = json::array();
    for (const std::string& argument : command.argv) argv.push_back(verify::Sha256Hex(argument));
    commands.push_back({{"argv", std::move(argv)}, {"cwd", command.cwd}, {"timeout_ms", command.timeout_ms}});
  }
  json plan = {{"request", request_digest},
               {"policy", admitted.policy_digest},
               {"source", admitted.source_digest},
               {"commands", std::move(commands)}};
  // The name alone could mean another image by the time of an approval.
  if (admitted.plan.image) plan["image"] = admitted.plan.image->digest;
  return verify::Sha256Hex(Dump(plan));
}

std::string ToText(const verify::ApprovalRequest& request) {
  json required = json::array();
  for (const verify::RequiredApproval& one : request.required) {
    json item = {{"kind", one.kind}, {"why", audit::OneLine(one.why)}};
    if (!one.by.empty()) item["by"] = one.by;
    required.push_back(std::move(item));
  }
  json document = {{"schema_version", 1},
                   {"kind", "request"},
                   {"approval_id", request.binding.approval_id},
                   {"job_id", request.binding.job_id},
                   {"plan_digest", request.binding.plan_digest},
                   {"nonce", request.binding.nonce},
                   {"requested_at", request.requested_at},
                   {"expires_at", request.expires_at},
                   {"submitter", verify::ToJson(request.submitter)},
                   {"required", std::move(required)},
                   {"quorum", request.quorum}};
  if (!request.tenant.empty()) document["tenant"] = request.tenant;
  return Dump(document);
}

std::string DeadLetterText(const store::Job& job, const std::string& request,
                           const std::vector<store::Attempt>& attempts, const verify::RetryPolicy& retry,
                           const std::string& result) {
  json history = json::array();
  for (const store::Attempt& attempt : attempts) {
    // A requeued job counts its attempts anew; its dead letter describes the last round.
    if (!history.empty() && attempt.number <= history.back()["attempt"].get<int64_t>()) history = json::array();
    json item = {{"attempt", attempt.number},
                 {"cause", attempt.cause},
                 {"error", audit::OneLine(attempt.error)},
                 {"started_at", UtcTime(attempt.started_ms)},
                 {"ended_at", UtcTime(attempt.ended_ms)}};
    if (!attempt.worker.empty()) item["worker"] = attempt.worker;
    history.push_back(std::move(item));
  }
  const bool overdue =
      history.empty() || (job.deadline_ms != 0 && job.finished_ms >= job.deadline_ms && job.attempt < job.max_attempts);
  json letter = {{"schema_version", 1},
                 {"kind", "dead_letter"},
                 {"message_id", job.id + "." + std::to_string(job.attempt)},
                 {"dead_at", UtcTime(job.finished_ms)},
                 {"reason", overdue ? "deadline_passed" : "attempts_exhausted"},
                 {"history", std::move(history)},
                 {"job", JobMessage(job, request, retry)}};
  if (!result.empty()) letter["last_result"] = json::parse(result);
  return Dump(letter);
}

}  // namespace caisson::service
