// What people with a say do: approvals and dead letters.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/words.h"
#include "service/documents.h"
#include "service/engine.h"
#include "service/job_runner.h"
#include "service/workers.h"

namespace caisson::service {
namespace {

// Who approves must see what, and who reads may see what is asked.
Status RequireSight(const Caller& caller) {
  return caller.Has(Right::kRead) ? Status() : Require(caller, Right::kApprove);
}

constexpr int64_t kMaxApprovalsShown = 1'000;
constexpr int64_t kMaxEventsOfAJob = 1'000'000;

}  // namespace

Result<std::vector<store::Approval>> Engine::Approvals(const Caller& caller,
                                                       std::optional<store::ApprovalState> state) {
  CAISSON_TRY_VOID(RequireSight(caller));
  const bool all = caller.Has(Right::kAdmin);
  return parts_.store->ListApprovals(all ? "" : caller.tenant, state, kMaxApprovalsShown);
}

Result<store::Approval> Engine::FindApproval(const Caller& caller, const std::string& approval_id) {
  CAISSON_TRY_VOID(RequireSight(caller));
  Result<store::Approval> approval = parts_.store->FindApproval(approval_id);
  const bool hidden = approval && approval->tenant != caller.tenant && !caller.Has(Right::kAdmin);
  if (hidden || (!approval && approval.error().kind == ErrorKind::kNotFound))
    return Error::NotFound("there is no approval " + Quoted(approval_id));
  return approval;
}

Result<store::Approval> Engine::Answer(const Caller& caller, const std::string& approval_id, bool grant,
                                       const std::string& plan_digest, const std::string& nonce,
                                       const std::string& reason) {
  CAISSON_TRY_VOID(Require(caller, Right::kApprove));
  CAISSON_TRY(const store::Approval approval, FindApproval(caller, approval_id));
  CAISSON_TRY(const verify::Approval document, verify::ParseApproval(approval.document));
  const auto& question = std::get<verify::ApprovalRequest>(document);
  const int64_t now = UnixMillis();
  if (!grant && reason.empty()) return Error::Invalid("reason: a denial says why");
  verify::ApprovalDecision decision;
  decision.binding = {approval.id, approval.job_id, plan_digest, nonce};
  decision.decision = grant ? verify::Answer::kGranted : verify::Answer::kDenied;
  decision.decided_at = UtcTime(now);
  decision.approver = {caller.subject, verify::Role::kApprover};
  decision.reason = audit::OneLine(reason);
  if (const Status fits = verify::CheckDecision(question, decision); !fits) {
    // Nobody may answer for himself; everything else does not fit the question any more.
    const bool own = grant && caller.subject == question.submitter.subject;
    return own ? fits.error() : Error::Conflict(fits.error().message);
  }
  if (approval.state != store::ApprovalState::kPending)
    return Error::Conflict("approval " + approval.id + " was " + store::Name(approval.state) + " already");
  CAISSON_TRY(const store::Job job, parts_.store->Find(approval.job_id));
  store::End end;
  std::vector<store::Event> events;
  const nlohmann::json members = {{"approval_id", approval.id}, {"approver", caller.subject}};
  if (grant) {
    events.push_back({0, now, "approval_granted", Dump(members)});
  } else {
    CAISSON_TRY(end, RejectedEnd(parts_, job, "approval denied by " + caller.subject + ": " + decision.reason,
                                 "approval_denied", members));
  }
  CAISSON_TRY_VOID(
      parts_.trail->Record(job, decision.approver,
                           audit::ApprovalStep{approval.id, approval.plan_digest, decision.decision, decision.reason}));
  CAISSON_TRY(store::Approval answered,
              parts_.store->AnswerApproval(approval.id, {caller.subject, grant, decision.reason, now}, end, events));
  parts_.changes->Notify(job.id);
  if (answered.state == store::ApprovalState::kGranted) workers_.Wake();
  return answered;
}

Result<std::vector<store::Job>> Engine::DeadLetters(const Caller& caller, store::JobFilter filter) {
  filter.states = {store::JobState::kDeadLettered};
  return List(caller, std::move(filter));
}

Result<std::string> Engine::DeadLetter(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY(const JobDetails details, Find(caller, job_id));
  if (details.job.state != store::JobState::kDeadLettered)
    return Error::NotFound("job " + job_id + " is no dead letter; it is " + store::Name(details.job.state));
  const Result<std::string> result = ResultText(details.job);
  return DeadLetterText(details.job, details.attempts, parts_.Retry(), result ? *result : "");
}

Result<store::Job> Engine::Requeue(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kAdmin));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  const int64_t now = UnixMillis();
  if (job.deadline_ms != 0 && job.deadline_ms <= now)
    return Error::Conflict("job " + job_id + ": its deadline has passed; submit it anew with a later one");
  const std::vector<store::Event> events = {{0, now, "queued", Dump({{"requeued_by", caller.subject}})}};
  CAISSON_TRY(store::Job queued, parts_.store->Requeue(job_id, now, events));
  parts_.changes->Notify(job_id);
  workers_.Wake();
  return queued;
}

Status Engine::Drop(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kAdmin));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  if (job.state != store::JobState::kDeadLettered)
    return Error::Conflict("job " + job_id + " is no dead letter; it is " + store::Name(job.state));
  CAISSON_TRY_VOID(parts_.trail->Record(job, {caller.subject, verify::Role::kOperator},
                                        audit::Cancel{"dropped from the dead letters"}));
  return parts_.store->Remove(job_id);
}

Result<std::string> Engine::AttestationOf(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(ResultOf(caller, job_id));
  CAISSON_TRY(const std::vector<store::Event> events, parts_.store->Events(job_id, 0, kMaxEventsOfAJob));
  for (const store::Event& event : events) {
    if (event.type != "result") continue;
    const nlohmann::json members = nlohmann::json::parse(event.body);
    if (!members.contains("attestation")) break;
    int64_t bytes = 0;
    CAISSON_TRY(const UniqueFd file, parts_.blobs->Get(members["attestation"], &bytes));
    return ReadWhole(file.get(), bytes);
  }
  return Error::NotFound("job " + job_id + " was not signed; the service's operator can set signing_key");
}

}  // namespace caisson::service
