#include "service/job_runner.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "attest/envelope.h"
#include "base/clock.h"
#include "intake/intake.h"
#include "service/documents.h"
#include "verify/digest.h"
#include "verify/verifier.h"

namespace caisson::service {

using nlohmann::json;
using store::JobState;

namespace {

// Beyond this a result is a file: the database's log is no place for a program's output.
constexpr size_t kMaxResultInStore = size_t{32} << 10;

JobState StateOf(verify::VerdictStatus status) {
  switch (status) {
    case verify::VerdictStatus::kPass:
      return JobState::kSucceeded;
    case verify::VerdictStatus::kFail:
      return JobState::kFailed;
    case verify::VerdictStatus::kRejected:
      return JobState::kRejected;
    case verify::VerdictStatus::kCancelled:
      return JobState::kCancelled;
    case verify::VerdictStatus::kError:
      break;
  }
  return JobState::kDeadLettered;
}

double Chance() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(generator);
}

double SecondsSince(int64_t nanos) { return static_cast<double>(MonotonicNanos() - nanos) / 1e9; }

std::vector<std::string> MissingRules(const policy::Decision& decision) {
  std::vector<std::string> rules;
  for (const policy::ApprovalNeed& need : decision.approvals) {
    if (need.given_by.empty()) rules.push_back(need.rule);
  }
  return rules;
}

}  // namespace

Result<store::End> MakeEnd(Parts& parts, const verify::VerificationResult& result, JobState state) {
  store::End end;
  end.state = state;
  end.status = verify::StatusName(result.verdict.status);
  end.failure_class = result.verdict.failure_class;
  end.now_ms = UnixMillis();
  end.result = Dump(verify::ToJson(result));
  for (const verify::Artifact& artifact : result.artifacts)
    end.blobs.push_back({artifact.sha256, static_cast<int64_t>(artifact.bytes)});
  if (end.result.size() > kMaxResultInStore) {
    CAISSON_TRY(end.result_blob, parts.blobs->Put(end.result));
    end.blobs.push_back({end.result_blob, static_cast<int64_t>(end.result.size())});
    end.result.clear();
  }
  return end;
}

namespace {

Result<store::End> EndWithoutRun(Parts& parts, const store::Job& job, const std::string& why, verify::Verdict verdict,
                                 const char* event, nlohmann::json members) {
  CAISSON_TRY(verify::Request request, verify::ParseRequest(job.request));
  request.request_id = job.request_id;
  request.attempt = job.attempt;
  verify::VerificationResult result = verify::RefusalResult(request, Error::Denied(why));
  result.verdict = std::move(verdict);
  CAISSON_TRY(store::End end, MakeEnd(parts, result, StateOf(result.verdict.status)));
  members["reason"] = why;
  end.events.push_back({0, end.now_ms, event, Dump(members)});
  end.events.push_back({0, end.now_ms, "result", Dump({{"status", end.status}})});
  return end;
}

}  // namespace

Result<store::End> RejectedEnd(Parts& parts, const store::Job& job, const std::string& why, const char* event,
                               nlohmann::json members) {
  return EndWithoutRun(parts, job, why, {verify::VerdictStatus::kRejected, "PolicyRejected", "rejected"}, event,
                       std::move(members));
}

Result<store::End> CancelledEnd(Parts& parts, const store::Job& job, const std::string& why) {
  return EndWithoutRun(parts, job, why, {verify::VerdictStatus::kCancelled, "", "cancelled"}, "cancelled",
                       json::object());
}

Status EndAttempt(Parts& parts, const store::Job& job, verify::RetryCause cause, const std::string& error,
                  const std::string& result, std::vector<store::Event> events) {
  const bool lost = cause == verify::RetryCause::kLostWorker;
  const char* cause_name = lost ? "lost_worker" : "infrastructure_error";
  const std::string line = audit::OneLine(error);
  const store::Attempt ended{job.attempt, cause_name, line, job.worker, job.started_ms, UnixMillis()};
  verify::Job message;
  message.attempt = job.attempt;
  message.max_attempts = job.max_attempts;
  message.retry = parts.Retry();
  const int64_t delay_ms = verify::RetryDelayMs(message, Chance());
  const int64_t now = UnixMillis();
  const bool in_time = job.deadline_ms == 0 || now + delay_ms < job.deadline_ms;
  parts.metrics.Add("caisson_attempts_failed_total", std::string("cause=\"") + cause_name + "\"");
  const store::Lease lease{job.id, job.lease_token};
  if (verify::MayRetry(message, cause) && in_time) {
    CAISSON_TRY_VOID(parts.trail->Record(job, TheService(), audit::Retry{job.attempt, cause, line}));
    events.push_back(
        {0, now, "retry_scheduled",
         Dump({{"attempt", job.attempt}, {"cause", cause_name}, {"error", line}, {"delay_ms", delay_ms}})});
    CAISSON_TRY_VOID(parts.store->Retry(lease, ended, now + delay_ms, events));
  } else {
    CAISSON_TRY_VOID(parts.trail->Record(job, TheService(), audit::GivenUp{job.attempt, line}));
    events.push_back({0, now, "dead_lettered", Dump({{"attempt", job.attempt}, {"error", line}})});
    store::End end;
    end.state = JobState::kDeadLettered;
    end.status = "error";
    end.failure_class = "InfrastructureError";
    end.now_ms = now;
    end.events = std::move(events);
    end.result = result;
    if (result.size() > kMaxResultInStore) {
      CAISSON_TRY(end.result_blob, parts.blobs->Put(result));
      end.blobs.push_back({end.result_blob, static_cast<int64_t>(result.size())});
      end.result.clear();
    }
    CAISSON_TRY_VOID(parts.store->GiveUp(lease, ended, end));
    parts.metrics.Add("caisson_dead_letters_total");
  }
  parts.changes->Notify(job.id);
  return {};
}

void JobRunner::Run() {
  const Status done = Attempt();
  if (done) return;
  // kConflict: the lease was taken away, and with it the job. Everything else is our failure, and the attempt's.
  if (done.error().kind == ErrorKind::kConflict) {
    parts_.metrics.Add("caisson_leases_lost_total");
    return;
  }
  const std::unique_lock order = live_->LockEvents();
  // Where this fails too (no database, a full disk) the lease runs out and a reconciler does it.
  const Status ended = EndAttempt(parts_, live_->job(), verify::RetryCause::kInfrastructureError, done.error().message,
                                  "", live_->TakeEvents());
  if (!ended) parts_.metrics.Add("caisson_store_errors_total");
}

Result<verify::Request> JobRunner::ReadRequest() const {
  const store::Job& job = live_->job();
  CAISSON_TRY(verify::Request request, verify::ParseRequest(job.request));
  request.request_id = job.request_id;
  request.attempt = job.attempt;
  return request;
}

Status JobRunner::UnpackArchive(verify::Request& request) const {
  if (!request.source.archive) return {};
  const std::string sha256 = request.source.archive->substr(request.source.archive->find(':') + 1);
  CAISSON_TRY(const UniqueFd file, parts_.blobs->Get(sha256));
  CAISSON_TRY(const intake::Archive archive, intake::Archive::Take(file.get(), sha256));
  CAISSON_TRY(request.source.unpacked,
              intake::Unpack(archive, *intake::FindArchiveFormat(request.source.archive_format), intake::Limits{}));
  return {};
}

Status JobRunner::Attempt() {
  const store::Job& job = live_->job();
  const int64_t begin = MonotonicNanos();
  parts_.metrics.Observe("caisson_wait_seconds", static_cast<double>(UnixMillis() - job.submitted_ms) / 1e3);
  CAISSON_TRY(verify::Request request, ReadRequest());
  if (Status unpacked = UnpackArchive(request); !unpacked) {
    if (unpacked.error().kind == ErrorKind::kInvalid) return Reject(request, unpacked.error(), {});
    return unpacked;
  }
  CAISSON_TRY(std::optional<verify::Admitted> admitted, Admit(request));
  if (!admitted) return {};

  verify::EventLog events = verify::EventLog::To([&](const char* type, const json& members) {
    if (std::string_view(type) == "sandbox_started") {
      live_->Enter(JobState::kRunning);
      parts_.metrics.Observe("caisson_start_seconds", SecondsSince(begin));
    }
    live_->AddEvent(type, members);
  });
  verify::VerifyOptions options;
  options.signal_fd = live_->stop_fd();
  options.on_output = [&](const std::string& check, const char* stream, std::string_view bytes) {
    live_->AddOutput(stream, check, bytes);
  };
  options.keep_artifact = [&](const std::string& sha256, const std::string& bytes) -> Result<std::string> {
    CAISSON_TRY_VOID(parts_.blobs->Put(bytes));
    return "sha256:" + sha256;
  };
  const verify::VerificationResult result =
      verify::Verify(request, *std::move(admitted), *parts_.runtime, events, options);
  parts_.metrics.Observe("caisson_run_seconds", SecondsSince(begin));
  return Deliver(result);
}

Status JobRunner::Deliver(const verify::VerificationResult& result) {
  switch (result.verdict.status == verify::VerdictStatus::kCancelled ? live_->stop() : Stop::kNone) {
    case Stop::kLeaseLost:
      return Error::Conflict("the lease of job " + live_->job().id + " was lost");
    case Stop::kShutdown:
      return parts_.store->Release(live_->lease());
    case Stop::kCancelled:
    case Stop::kNone:
      break;
  }
  if (result.verdict.status == verify::VerdictStatus::kError) {
    const std::unique_lock order = live_->LockEvents();
    return EndAttempt(parts_, live_->job(), verify::RetryCause::kInfrastructureError, result.message,
                      Dump(verify::ToJson(result)), live_->TakeEvents());
  }
  return End(result);
}

Status JobRunner::End(const verify::VerificationResult& result) {
  CAISSON_TRY(store::End end, MakeEnd(parts_, result, StateOf(result.verdict.status)));
  const std::string digest = end.result_blob.empty() ? verify::Sha256Hex(end.result) : end.result_blob;
  json ending = {{"status", end.status}};
  if (parts_.key) {
    CAISSON_TRY(const std::string envelope,
                attest::Sign(Dump(verify::ToJson(result)), *parts_.key, {live_->job().id, ""}));
    CAISSON_TRY(const std::string blob, parts_.blobs->Put(envelope));
    end.blobs.push_back({blob, static_cast<int64_t>(envelope.size())});
    ending["attestation"] = blob;
  }
  CAISSON_TRY_VOID(parts_.trail->Record(live_->job(), TheService(),
                                        audit::Ended{result.verdict.status, result.verdict.failure_class, digest,
                                                     result.policy_digest, result.source_digest}));
  live_->AddEvent("result", ending);
  {
    const std::unique_lock order = live_->LockEvents();
    end.events = live_->TakeEvents();
    CAISSON_TRY_VOID(parts_.store->Finish(live_->lease(), end));
  }
  parts_.metrics.Add("caisson_results_total",
                     "status=\"" + end.status + "\",class=\"" + LabelValue(end.failure_class) + "\"");
  parts_.changes->Notify(live_->job().id);
  return {};
}

Result<std::optional<verify::Admitted>> JobRunner::Admit(const verify::Request& request) {
  const store::Job& job = live_->job();
  verify::Authority authority = parts_.authority;
  std::optional<store::Approval> approval;
  if (!job.approval_id.empty()) {
    CAISSON_TRY(approval, parts_.store->FindApproval(job.approval_id));
    // A second attempt runs under the same approval; a job that was requeued by hand asks anew.
    if (approval->used && job.attempt == 1) approval.reset();
  }
  if (approval) {
    Result<std::vector<std::string>> rules = UseApproval(*approval);
    if (!rules && rules.error().kind == ErrorKind::kDenied) {
      CAISSON_TRY_VOID(Reject(request, rules.error(), {}));
      return std::optional<verify::Admitted>();
    }
    if (!rules) return std::move(rules).error();
    authority.approved_rules = *std::move(rules);
    authority.approver = "approval " + approval->id;
  }
  policy::Decision decision;
  Result<verify::Admitted> admitted = verify::Admit(request, authority, &decision);
  if (!admitted && admitted.error().kind == ErrorKind::kDenied && !MissingRules(decision).empty() && !approval) {
    // What would run, were it allowed: that is what people are asked about.
    authority.approved_rules = MissingRules(decision);
    Result<verify::Admitted> would_run = verify::Admit(request, authority);
    if (would_run) {
      CAISSON_TRY_VOID(AskPeople(decision, *would_run));
      return std::optional<verify::Admitted>();
    }
    admitted = std::move(would_run);
  }
  if (!admitted) {
    const bool ours = admitted.error().kind == ErrorKind::kSystem || admitted.error().kind == ErrorKind::kUnsupported;
    if (ours) return std::move(admitted).error();
    CAISSON_TRY_VOID(Reject(request, admitted.error(), decision));
    return std::optional<verify::Admitted>();
  }
  const std::string plan_digest = PlanDigest(job.request_digest, *admitted);
  if (approval && plan_digest != approval->plan_digest) {
    CAISSON_TRY_VOID(Reject(request,
                            Error::Denied("approval " + approval->id +
                                          " is for another plan: its source or "
                                          "the policy changed after it was asked for; submit it again"),
                            decision));
    return std::optional<verify::Admitted>();
  }
  audit::Admit entry{admitted->policy_digest, admitted->source_digest, plan_digest, {}};
  for (const policy::Override& one : admitted->plan.decision.overrides) entry.overrides.push_back(audit::RecordOf(one));
  CAISSON_TRY_VOID(parts_.trail->Record(job, TheService(), std::move(entry)));
  live_->Enter(JobState::kAdmitted);
  live_->AddEvent("admitted", {{"policy_digest", admitted->policy_digest},
                               {"source_digest", admitted->source_digest},
                               {"plan_digest", plan_digest},
                               {"attempt", job.attempt},
                               {"decision", policy::ToJson(admitted->plan.decision)}});
  return std::optional<verify::Admitted>(*std::move(admitted));
}

Status JobRunner::AskPeople(const policy::Decision& decision, const verify::Admitted& admitted) {
  const store::Job& job = live_->job();
  const int64_t now = UnixMillis();
  verify::ApprovalRequest question;
  question.binding = {RandomHex(), job.id, PlanDigest(job.request_digest, admitted), RandomHex()};
  question.tenant = job.tenant;
  question.requested_at = UtcTime(now);
  question.expires_at = UtcTime(now + parts_.config.approval_ttl_ms);
  question.submitter = {job.submitter, verify::Role::kSubmitter};
  question.quorum = parts_.config.approval_quorum;
  for (const policy::ApprovalNeed& need : decision.approvals) {
    if (need.given_by.empty()) question.required.push_back({need.approval, need.rule, need.why});
  }
  store::Approval approval;
  approval.id = question.binding.approval_id;
  approval.job_id = job.id;
  approval.tenant = job.tenant;
  approval.document = ToText(question);
  approval.plan_digest = question.binding.plan_digest;
  approval.quorum = question.quorum;
  approval.requested_ms = now;
  approval.expires_ms = now + parts_.config.approval_ttl_ms;
  CAISSON_TRY_VOID(parts_.trail->Record(job, TheService(),
                                        audit::ApprovalStep{approval.id, approval.plan_digest, std::nullopt, ""}));
  live_->AddEvent("approval_requested", {{"approval_id", approval.id},
                                         {"plan_digest", approval.plan_digest},
                                         {"expires_at", question.expires_at},
                                         {"decision", policy::ToJson(decision)}});
  const std::unique_lock order = live_->LockEvents();
  CAISSON_TRY_VOID(parts_.store->AwaitApproval(live_->lease(), approval, live_->TakeEvents()));
  parts_.changes->Notify(job.id);
  return {};
}

Result<std::vector<std::string>> JobRunner::UseApproval(const store::Approval& approval) {
  const store::Job& job = live_->job();
  if (approval.state != store::ApprovalState::kGranted || approval.job_id != job.id)
    return Error::Denied("approval " + approval.id + " was not granted to this job");
  // SECURITY: once, whatever happens after; the store refuses a second use.
  if (!approval.used) CAISSON_TRY_VOID(parts_.store->UseApproval(live_->lease(), approval.id));
  CAISSON_TRY(const verify::Approval document, verify::ParseApproval(approval.document));
  std::vector<std::string> rules;
  for (const verify::RequiredApproval& required : std::get<verify::ApprovalRequest>(document).required)
    rules.push_back(required.kind);
  return rules;
}

Status JobRunner::Reject(const verify::Request& request, const Error& error, const policy::Decision& decision) {
  verify::VerificationResult result = verify::RefusalResult(request, Error::Denied(error.message));
  result.decision = policy::ToJson(decision);
  CAISSON_TRY_VOID(parts_.trail->Record(live_->job(), TheService(),
                                        audit::Reject{"admission", audit::OneLine(error.message), "", ""}));
  live_->AddEvent("rejected", {{"reason", error.message}, {"decision", result.decision}});
  return End(result);
}

}  // namespace caisson::service
