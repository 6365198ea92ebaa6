// Actions of operators: approvals and dead letters.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/words.h"
#include "linux/files.h"
#include "service/documents.h"
#include "service/engine.h"
#include "service/job_runner.h"
#include "service/kept_request.h"
#include "service/workers.h"

namespace caisson::service {
namespace {

// Approvers must see the question; readers may see it.
Status RequireSight(const Caller& caller) {
  return caller.Has(Right::kRead) ? Status() : Require(caller, Right::kApprove);
}

constexpr int64_t kMaxApprovalsShown = 1'000;

}  // namespace

Result<std::vector<store::Approval>> Engine::Approvals(const Caller& caller,
                                                       std::optional<store::ApprovalState> state) {
  CAISSON_TRY_VOID(RequireSight(caller));
  const bool all = caller.Has(Right::kAdmin);
  return context_.store->ListApprovals(all ? "" : caller.tenant, state, kMaxApprovalsShown);
}

Result<store::Approval> Engine::FindApproval(const Caller& caller, const std::string& approval_id) {
  CAISSON_TRY_VOID(RequireSight(caller));
  Result<store::Approval> approval = context_.store->FindApproval(approval_id);
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
  if (!grant && reason.empty()) return Error::Invalid("reason: a denial needs a reason");
  verify::ApprovalDecision decision;
  decision.binding = {approval.id, approval.job_id, plan_digest, nonce};
  decision.decision = grant ? verify::Answer::kGranted : verify::Answer::kDenied;
  decision.decided_at = UtcTime(now);
  decision.approver = {caller.subject, verify::Role::kApprover};
  decision.reason = audit::OneLine(reason);
  if (const Status fits = verify::CheckDecision(question, decision); !fits) {
    // A submitter may not approve the own request; the other errors mean that the question has changed or closed.
    const bool own = grant && caller.subject == question.submitter.subject;
    return own ? fits.error() : Error::Conflict(fits.error().message);
  }
  if (approval.state != store::ApprovalState::kPending)
    return Error::Conflict("approval " + approval.id + " was " + store::Name(approval.state) + " already");
  CAISSON_TRY(const store::Job job, context_.store->Find(approval.job_id));
  store::End end;
  std::vector<store::Event> events;
  const nlohmann::json members = {{"approval_id", approval.id}, {"approver", caller.subject}};
  if (grant) {
    events.push_back({0, now, "approval_granted", Dump(members)});
  } else {
    CAISSON_TRY(end, RejectedEnd(context_, job, "approval denied by " + caller.subject + ": " + decision.reason,
                                 "approval_denied", members));
  }
  // Only an answer that takes effect leaves a record: both are one transaction. A worker that claims the job waits
  // until the record is in the log (JobRunner::Attempt).
  const audit::ApprovalStep step{approval.id, approval.plan_digest, decision.decision, decision.reason};
  CAISSON_TRY(store::Approval answered,
              context_.store->AnswerApproval(approval.id, {caller.subject, grant, decision.reason, now}, end, events,
                                             context_.audit_writer->Note(job, decision.approver, step)));
  CAISSON_TRY_VOID(context_.audit_writer->WriteNotes(*context_.store));
  context_.changes->Notify(job.id);
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
  const Result<Document> result = ResultDocument(details.job);
  CAISSON_TRY(const std::string request, RequestDocument(context_, details.job));
  const int64_t size = static_cast<int64_t>(request.size()) + (result ? result->bytes : 0);
  const ByteBudget::Share memory = context_.large_documents.Take(3 * size);
  std::string text;
  if (result && !result->file) text = result->text;
  if (result && result->file) {
    CAISSON_TRY(text, linux_sys::ReadAt(result->file.get(), 0, result->bytes));
  }
  return DeadLetterText(details.job, request, details.attempts, context_.Retry(), text);
}

Result<store::Job> Engine::Requeue(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kAdmin));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  const int64_t now = UnixMillis();
  if (job.deadline_ms != 0 && job.deadline_ms <= now)
    return Error::Conflict("job " + job_id + ": its deadline has passed; submit it anew with a later one");
  const std::vector<store::Event> events = {{0, now, "queued", Dump({{"requeued_by", caller.subject}})}};
  CAISSON_TRY(store::Job queued, context_.store->Requeue(job_id, now, events));
  context_.changes->Notify(job_id);
  workers_.Wake();
  return queued;
}

Status Engine::Drop(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kAdmin));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  if (job.state != store::JobState::kDeadLettered)
    return Error::Conflict("job " + job_id + " is no dead letter; it is " + store::Name(job.state));
  CAISSON_TRY_VOID(
      context_.store->Remove(job_id, context_.audit_writer->Note(job, {caller.subject, verify::Role::kOperator},
                                                                 audit::Cancel{"dropped from the dead letters"})));
  return context_.audit_writer->WriteNotes(*context_.store);
}

Result<std::string> Engine::AttestationOf(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  CAISSON_TRY_VOID(ResultDocument(job));
  CAISSON_TRY(const nlohmann::json end, EndOf(job_id));
  if (!end.contains("attestation"))
    return Error::NotFound("job " + job_id + " was not signed; the service's operator can set signing_key");
  int64_t bytes = 0;
  CAISSON_TRY(const UniqueFd file, context_.blobs->Get(job.tenant, end["attestation"], &bytes, true));
  return linux_sys::ReadAt(file.get(), 0, bytes);
}

}  // namespace caisson::service
