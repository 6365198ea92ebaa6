#include "service/job_runner.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "attest/envelope.h"
#include "base/clock.h"
#include "intake/intake.h"
#include "linux/files.h"
#include "service/documents.h"
#include "service/kept_request.h"
#include "service/log.h"
#include "verify/digest.h"

namespace caisson::service {

using nlohmann::json;
using store::JobState;

namespace {

// A larger result is stored as a file, because the database's log is not meant for program output.
constexpr size_t kMaxResultInStore = size_t{32} << 10;
// The limit for each output stream when the tenant's quota has no room for more.
constexpr size_t kMaxOutputWithoutRoom = size_t{2} << 10;
constexpr char kNoRoom[] = "the tenant's blob quota (blob_quota_per_tenant) is used up";
// The reference of an artifact that was not stored because the quota had no room.
constexpr char kNotKept[] = "";
constexpr int64_t kPostponeMs = 2'000;
constexpr int64_t kPostponeAgainMs = 15'000;

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

namespace {

// Adds what a job did outside its sandbox to its tenant's account. Denied look-ups count as denied connections; allowed
// ones reach nothing.
void CountNetwork(ServiceContext& context, const std::string& tenant, const verify::VerificationResult& result) {
  const std::string label = "tenant=\"" + LabelValue(tenant) + "\"";
  int64_t in = 0, out = 0, allowed = 0, denied = 0;
  for (const verify::CheckRecord& check : result.checks) {
    for (const NetworkUse& use : check.outcome.network) {
      in += use.bytes_in;
      out += use.bytes_out;
      if (!use.allowed) denied += use.connections;
      if (use.allowed && use.protocol != "dns" && use.reason == "allowed") allowed += use.connections;
    }
  }
  context.network->Charge(tenant, UnixMillis(), in + out);
  if (allowed > 0)
    context.metrics.Add("caisson_network_connections_total", label + ",decision=\"allowed\"",
                        static_cast<double>(allowed));
  if (denied > 0)
    context.metrics.Add("caisson_network_connections_total", label + ",decision=\"denied\"",
                        static_cast<double>(denied));
  if (in > 0) context.metrics.Add("caisson_network_bytes_total", label + ",direction=\"in\"", static_cast<double>(in));
  if (out > 0)
    context.metrics.Add("caisson_network_bytes_total", label + ",direction=\"out\"", static_cast<double>(out));
}

// Holds a document in memory while it is short, and writes it to a blob once it is longer.
class DocumentWriter {
 public:
  DocumentWriter(BlobStore& blobs, const std::string& tenant) : blobs_(blobs), tenant_(tenant) {}

  Status Add(std::string_view piece) {
    bytes_ += static_cast<int64_t>(piece.size());
    if (upload_ == nullptr) {
      if (text_.size() + piece.size() <= kMaxResultInStore) {
        text_ += piece;
        return {};
      }
      CAISSON_TRY(upload_, blobs_.Begin(tenant_, 0));
      CAISSON_TRY_VOID(upload_->Add(text_));
      text_.clear();
    }
    return upload_->Add(piece);
  }
  Status Finish(std::string& text, std::string& blob, std::vector<store::Blob>& blobs) {
    text = std::move(text_);
    if (upload_ == nullptr) return {};
    CAISSON_TRY(blob, upload_->Finish());
    blobs.push_back({blob, bytes_});
    return {};
  }

 private:
  BlobStore& blobs_;
  const std::string& tenant_;
  std::string text_;
  std::unique_ptr<Blobs::Upload> upload_;
  int64_t bytes_ = 0;
};

// Stores the output of the checks in a blob, from which Service::Logs reads it from now on.
Status KeepLog(ServiceContext& context, const std::string& tenant, const verify::VerificationResult& result,
               store::End& end, json& ending) {
  CAISSON_TRY(const std::unique_ptr<Blobs::Upload> upload, context.blobs->Begin(tenant, 0));
  const auto add = [&](std::string_view bytes) { return upload->Add(bytes); };
  const verify::OutputText out = OutputOf(result, &CommandOutcome::stdout_stream);
  const verify::OutputText err = OutputOf(result, &CommandOutcome::stderr_stream);
  CAISSON_TRY_VOID(out.WriteBytes(add));
  CAISSON_TRY_VOID(err.WriteBytes(add));
  CAISSON_TRY(const std::string blob, upload->Finish());
  end.blobs.push_back({blob, static_cast<int64_t>(out.bytes() + err.bytes())});
  ending["log"] = blob;
  ending["log_stdout"] = out.bytes();
  return {};
}

Status KeepResult(ServiceContext& context, const std::string& tenant, const verify::VerificationResult& result,
                  store::End& end, json& ending) {
  DocumentWriter writer(*context.blobs, tenant);
  CAISSON_TRY(const int64_t rest_at, WriteJson(result, [&](std::string_view piece) { return writer.Add(piece); }));
  CAISSON_TRY_VOID(writer.Finish(end.result, end.result_blob, end.blobs));
  if (end.result_blob.empty()) return {};
  ending["rest_at"] = rest_at;
  const Status log = KeepLog(context, tenant, result, end, ending);
  // When the quota has no room for both, the log is left out; the result contains the output too.
  return log || log.error().kind == ErrorKind::kExhausted ? Status() : log;
}

void CutStream(CapturedStream& stream) {
  const size_t kept = std::min(stream.head.size(), kMaxOutputWithoutRoom);
  stream.dropped_bytes += stream.head.size() - kept + stream.tail.size();
  stream.head.resize(kept);
  stream.tail.clear();
}

// Keeps the verdict and shortens the output.
verify::VerificationResult WithoutLargeThings(verify::VerificationResult result) {
  for (verify::CheckRecord& check : result.checks) {
    CutStream(check.outcome.stdout_stream);
    CutStream(check.outcome.stderr_stream);
  }
  result.message += std::string(result.message.empty() ? "" : "; ") + "output was left out: " + kNoRoom;
  return result;
}

}  // namespace

Result<store::End> MakeEnd(ServiceContext& context, const std::string& tenant, const verify::VerificationResult& result,
                           JobState state, json& ending) {
  store::End end;
  end.state = state;
  end.status = verify::StatusName(result.verdict.status);
  end.failure_class = result.verdict.failure_class;
  end.now_ms = UnixMillis();
  ending["status"] = end.status;
  for (const verify::Artifact& artifact : result.artifacts)
    end.blobs.push_back({artifact.sha256, static_cast<int64_t>(artifact.bytes)});
  const size_t artifacts = end.blobs.size();
  const Status kept = KeepResult(context, tenant, result, end, ending);
  if (kept) return end;
  if (kept.error().kind != ErrorKind::kExhausted) return kept.error();
  end.blobs.resize(artifacts);
  end.result_blob.clear();
  ending = {{"status", end.status}};
  // The shortened result is stored whatever its length; the request that it comes from was stored too.
  end.result.clear();
  CAISSON_TRY_VOID(WriteJson(WithoutLargeThings(result), [&](std::string_view piece) -> Status {
    end.result += piece;
    return {};
  }));
  return end;
}

std::string TellTenant(const store::Job& job, const Error& error) {
  const std::string reference = job.id + "." + std::to_string(job.attempt);
  LogLine("error", "an attempt failed", {{"reference", reference}, {"error", audit::OneLine(error.message)}});
  return "the service failed to run the job; its operator finds the cause in the log under " + reference;
}

bool IsOperatorsFault(const ServiceContext& context, const Error& error) {
  if (error.kind != ErrorKind::kSystem) return false;
  switch (error.errno_value) {
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EROFS:
    case EAGAIN:
    case ECONNREFUSED:  // nothing listens on the launcher's socket, …
      return true;
    case ENOENT:  // … or it does not exist. A launcher that dies during a run does not count: the run may be the cause.
      return !context.runtime_ready();
    default:
      return false;
  }
}

Status PostponeAttempt(ServiceContext& context, const store::Job& job, const Error& error,
                       std::vector<store::Event> events) {
  const int64_t now = UnixMillis();
  const std::string told = TellTenant(job, error);
  context.metrics.Add("caisson_attempts_failed_total", "cause=\"postponed\"");
  // A disk can stay full for a day, so later delays are longer.
  const int64_t delay_ms = job.not_before_ms > 0 ? kPostponeAgainMs : kPostponeMs;
  events.push_back({0, now, "retry_scheduled",
                    Dump({{"attempt", job.attempt},
                          {"cause", "infrastructure_error"},
                          {"counts", false},
                          {"error", told},
                          {"delay_ms", delay_ms}})});
  CAISSON_TRY_VOID(context.store->Postpone({job.id, job.lease_token}, now + delay_ms, events));
  context.changes->Notify(job.id);
  return {};
}

namespace {

Result<store::End> EndWithoutRun(ServiceContext& context, const store::Job& job, const std::string& why,
                                 verify::Verdict verdict, const char* event, nlohmann::json members) {
  CAISSON_TRY(const verify::Request request, ReadKeptRequest(context, job));
  verify::VerificationResult result = verify::RefusalResult(request, Error::Denied(why));
  result.verdict = std::move(verdict);
  json ending = json::object();
  CAISSON_TRY(store::End end, MakeEnd(context, job.tenant, result, StateOf(result.verdict.status), ending));
  members["reason"] = why;
  end.events.push_back({0, end.now_ms, event, Dump(members)});
  end.events.push_back({0, end.now_ms, "result", Dump(ending)});
  return end;
}

}  // namespace

Result<store::End> RejectedEnd(ServiceContext& context, const store::Job& job, const std::string& why,
                               const char* event, nlohmann::json members) {
  return EndWithoutRun(context, job, why, {verify::VerdictStatus::kRejected, "PolicyRejected", "rejected"}, event,
                       std::move(members));
}

Result<store::End> CancelledEnd(ServiceContext& context, const store::Job& job, const std::string& why) {
  return EndWithoutRun(context, job, why, {verify::VerdictStatus::kCancelled, "", "cancelled"}, "cancelled",
                       json::object());
}

Status EndAttempt(ServiceContext& context, const store::Job& job, verify::RetryCause cause, const Error& error,
                  const verify::VerificationResult* result, std::vector<store::Event> events) {
  const bool lost = cause == verify::RetryCause::kLostWorker;
  const char* cause_name = lost ? "lost_worker" : "infrastructure_error";
  const std::string line = audit::OneLine(error.message);  // for the audit log, which only the operator reads
  const std::string told = lost ? line : TellTenant(job, error);
  const store::Attempt ended{job.attempt, cause_name, told, job.worker, job.started_ms, UnixMillis()};
  verify::Job message;
  message.attempt = job.attempt;
  message.max_attempts = job.max_attempts;
  message.retry = context.Retry();
  const int64_t delay_ms = verify::RetryDelayMs(message, Chance());
  const int64_t now = UnixMillis();
  const bool in_time = job.deadline_ms == 0 || now + delay_ms < job.deadline_ms;
  context.metrics.Add("caisson_attempts_failed_total", std::string("cause=\"") + cause_name + "\"");
  const store::Lease lease{job.id, job.lease_token};
  if (verify::MayRetry(message, cause) && in_time) {
    CAISSON_TRY_VOID(context.audit_writer->Record(job, TheService(), audit::Retry{job.attempt, cause, line}));
    events.push_back(
        {0, now, "retry_scheduled",
         Dump({{"attempt", job.attempt}, {"cause", cause_name}, {"error", told}, {"delay_ms", delay_ms}})});
    CAISSON_TRY_VOID(context.store->Retry(lease, ended, now + delay_ms, events));
  } else {
    CAISSON_TRY_VOID(context.audit_writer->Record(job, TheService(), audit::GivenUp{job.attempt, line}));
    json ending = json::object();
    store::End end;
    if (result != nullptr) {
      verify::VerificationResult shown = *result;
      shown.message = told;
      CAISSON_TRY(end, MakeEnd(context, job.tenant, shown, JobState::kDeadLettered, ending));
      ending.erase("status");
    }
    end.state = JobState::kDeadLettered;
    end.status = "error";
    end.failure_class = "InfrastructureError";
    end.now_ms = now;
    ending.update({{"attempt", job.attempt}, {"error", told}});
    events.push_back({0, now, "dead_lettered", Dump(ending)});
    end.events = std::move(events);
    CAISSON_TRY_VOID(context.store->GiveUp(lease, ended, end));
    context.metrics.Add("caisson_dead_letters_total");
  }
  context.changes->Notify(job.id);
  return {};
}

void JobRunner::Run() {
  const Status done = Attempt();
  if (done) return;
  // kConflict: this worker lost the lease, and with it the job. Any other error is the service's failure and fails
  // the attempt.
  if (done.error().kind == ErrorKind::kConflict) {
    context_.metrics.Add("caisson_leases_lost_total");
    return;
  }
  const std::unique_lock order = live_->LockEvents();
  // If this fails too (no database, a full disk), the lease expires and a reconciler ends the attempt.
  const Status ended = IsOperatorsFault(context_, done.error())
                           ? PostponeAttempt(context_, live_->job(), done.error(), live_->TakeEvents())
                           : EndAttempt(context_, live_->job(), verify::RetryCause::kInfrastructureError, done.error(),
                                        nullptr, live_->TakeEvents());
  if (!ended) context_.metrics.Add("caisson_store_errors_total");
}

Status JobRunner::UnpackArchive(verify::Request& request) const {
  if (!request.source.archive) return {};
  const std::string sha256 = request.source.archive->substr(request.source.archive->find(':') + 1);
  CAISSON_TRY(const UniqueFd file, context_.blobs->Get(live_->job().tenant, sha256, nullptr, true));
  CAISSON_TRY(const intake::Archive archive, intake::Archive::Take(file.get(), sha256));
  CAISSON_TRY(request.source.unpacked,
              intake::Unpack(archive, *intake::FindArchiveFormat(request.source.archive_format), intake::Limits{}));
  return {};
}

Status JobRunner::Attempt() {
  const store::Job& job = live_->job();
  const int64_t begin = MonotonicNanos();
  context_.metrics.Observe("caisson_wait_seconds", static_cast<double>(UnixMillis() - job.submitted_ms) / 1e3);
  // SECURITY: a person's decision takes effect only after it is in the audit log.
  CAISSON_TRY_VOID(WriteNotesFirst());
  CAISSON_TRY(verify::Request request, ReadKeptRequest(context_, job));

  verify::EventLog events = verify::EventLog::To([&](const char* type, json members) {
    // Tenants do not see the text of the service's own failures.
    if (std::string_view(type) == "sandbox_failed") members["error"] = "the sandbox could not be started";
    if (std::string_view(type) == "sandbox_started") {
      live_->Enter(JobState::kRunning);
      context_.metrics.Observe("caisson_start_seconds", SecondsSince(begin));
    }
    live_->AddEvent(type, members);
  });
  verify::RunSinks sinks;
  sinks.audit = this;
  sinks.events = &events;
  sinks.on_output = [&](OutputStream stream, std::string_view bytes) {
    live_->AddOutput(stream == OutputStream::kStdout ? "stdout" : "stderr", bytes);
  };
  sinks.keep_artifact = [&](const std::string& sha256, const std::string& bytes) -> Result<std::string> {
    const Result<std::string> kept = context_.blobs->Put(job.tenant, bytes);
    if (!kept && kept.error().kind == ErrorKind::kExhausted) return std::string(kNotKept);
    if (!kept) return kept.error();
    return "sha256:" + sha256;
  };
  verify::RunOptions options;
  options.stop = &live_->stop_token();
  verify::RunDriver driver(request, context_.runtimes, sinks, options);

  policy::Decision decision;
  Result<std::optional<verify::Admitted>> admitted = [&]() -> Result<std::optional<verify::Admitted>> {
    const Status unpacked = UnpackArchive(request);
    if (unpacked) return JudgeRequest(request, decision);
    return unpacked.error().kind == ErrorKind::kInvalid ? Error::Denied(unpacked.error().message) : unpacked.error();
  }();
  if (!admitted) {
    const Error& error = admitted.error();
    if (error.kind != ErrorKind::kDenied) return error;
    CAISSON_TRY(const verify::VerificationResult refused, driver.Refuse(error, decision));
    return End(driver, refused);
  }
  if (!*admitted) return {};
  request.source = {};  // the plan contains it
  sinks.admitted_members = {{"plan_digest", PlanDigest(job.request_digest, **admitted)}, {"attempt", job.attempt}};
  NetworkQuota::Share network;
  if (policy::NetworkRules& rules = (*admitted)->plan.profile.network; rules.mode == policy::NetworkMode::kAllowlist) {
    Result<NetworkQuota::Share> share = context_.network->Take(job.tenant, UnixMillis(), rules.limits);
    if (!share && share.error().kind == ErrorKind::kDenied) {
      CAISSON_TRY(const verify::VerificationResult refused, driver.Refuse(share.error(), decision));
      return End(driver, refused);
    }
    if (!share) return std::move(share).error();
    network = *std::move(share);
  }
  CAISSON_TRY(verify::VerificationResult result, driver.Run(**std::move(admitted)));
  CountNetwork(context_, job.tenant, result);
  context_.metrics.Observe("caisson_run_seconds", SecondsSince(begin));
  std::erase_if(result.artifacts, [&](const verify::Artifact& artifact) {
    if (artifact.ref != kNotKept) return false;
    result.skipped_artifacts.push_back(artifact.path + ": " + kNoRoom);
    return true;
  });
  return Deliver(driver, std::move(result));
}

Status JobRunner::Admitted(const verify::Request&, const verify::Admitted& admitted) {
  const store::Job& job = live_->job();
  audit::AdmitRecord entry{
      admitted.policy_digest, admitted.source_digest, PlanDigest(job.request_digest, admitted), {}};
  for (const policy::Override& one : admitted.plan.decision.overrides) entry.overrides.push_back(audit::RecordOf(one));
  CAISSON_TRY_VOID(context_.audit_writer->Record(job, TheService(), std::move(entry)));
  live_->Enter(JobState::kAdmitted);
  return {};
}

Status JobRunner::Rejected(const verify::Request&, const Error& error) {
  return context_.audit_writer->Record(live_->job(), TheService(),
                                       audit::Reject{"admission", audit::OneLine(error.message), "", ""});
}

Status JobRunner::Ended(const verify::VerificationResult& result, const std::string& digest) {
  return context_.audit_writer->Record(live_->job(), TheService(),
                                       audit::Ended{result.verdict.status, result.verdict.failure_class, digest,
                                                    result.policy_digest, result.source_digest});
}

Status JobRunner::WriteNotesFirst() {
  if (live_->job().approval_id.empty()) return {};
  Status written = context_.audit_writer->WriteNotesOf(*context_.store, live_->job().id);
  if (written || written.error().kind != ErrorKind::kConflict) return written;
  // Another node is about to write the notes. Nothing is lost: the job waits for that node, and the attempt does not
  // count.
  return Error::System(EAGAIN, written.error().message);
}

Status JobRunner::Deliver(const verify::RunDriver& driver, verify::VerificationResult result) {
  switch (result.verdict.status == verify::VerdictStatus::kCancelled ? live_->stop() : Stop::kNone) {
    case Stop::kLeaseLost:
      return Error::Conflict("the lease of job " + live_->job().id + " was lost");
    case Stop::kShutdown:
      return context_.store->Release(live_->lease());
    case Stop::kCancelled:
    case Stop::kNone:
      break;
  }
  if (result.verdict.status == verify::VerdictStatus::kError) {
    const Error error{ErrorKind::kSystem, result.error_number, result.message};
    if (IsOperatorsFault(context_, error)) return error;
    const std::unique_lock order = live_->LockEvents();
    return EndAttempt(context_, live_->job(), verify::RetryCause::kInfrastructureError, error, &result,
                      live_->TakeEvents());
  }
  return End(driver, result);
}

Status JobRunner::Sign(const store::End& end, json& ending) const {
  if (!context_.key) return {};
  const std::string& tenant = live_->job().tenant;
  std::string text = end.result;
  int64_t bytes = 0;
  UniqueFd file;
  if (!end.result_blob.empty()) {
    CAISSON_TRY(file, context_.blobs->Get(tenant, end.result_blob, &bytes, false));
  }
  const ByteBudget::Share memory = context_.large_documents.Take(3 * bytes);
  if (file) {
    CAISSON_TRY(text, linux_sys::ReadAt(file.get(), 0, bytes));
  }
  CAISSON_TRY(const std::string envelope, attest::Sign(text, *context_.key, {live_->job().id, ""}));
  CAISSON_TRY(ending["attestation"], context_.blobs->Put(tenant, envelope));
  ending["attestation_bytes"] = envelope.size();
  return {};
}

Status JobRunner::End(const verify::RunDriver& driver, const verify::VerificationResult& result) {
  json ending = json::object();
  CAISSON_TRY(store::End end, MakeEnd(context_, live_->job().tenant, result, StateOf(result.verdict.status), ending));
  const std::string digest = end.result_blob.empty() ? verify::Sha256Hex(end.result) : end.result_blob;
  if (const Status has_signature = Sign(end, ending); !has_signature) {
    // Without room in the quota there is no envelope; the verdict remains valid.
    if (has_signature.error().kind != ErrorKind::kExhausted) return has_signature;
  } else if (ending.contains("attestation")) {
    end.blobs.push_back({ending["attestation"], ending["attestation_bytes"]});
  }
  CAISSON_TRY_VOID(driver.End(result, digest, ending));
  {
    const std::unique_lock order = live_->LockEvents();
    end.events = live_->TakeEvents();
    CAISSON_TRY_VOID(context_.store->Finish(live_->lease(), end));
  }
  context_.metrics.Add("caisson_results_total",
                       "status=\"" + end.status + "\",class=\"" + LabelValue(end.failure_class) + "\"");
  context_.changes->Notify(live_->job().id);
  return {};
}

Result<std::optional<verify::Admitted>> JobRunner::JudgeRequest(const verify::Request& request,
                                                                policy::Decision& decision) {
  const store::Job& job = live_->job();
  verify::Authority authority = context_.authority;
  std::optional<store::Approval> approval;
  if (!job.approval_id.empty()) {
    // All attempts run under the same approval. A job that was requeued by hand has no approval and asks again.
    CAISSON_TRY(approval, context_.store->FindApproval(job.approval_id));
  }
  if (approval) {
    CAISSON_TRY(authority.approved_rules, UseApproval(*approval));
    authority.approver = "approval " + approval->id;
  }
  Result<verify::Admitted> admitted = verify::Admit(request, authority, &decision);
  if (!admitted && admitted.error().kind == ErrorKind::kDenied && !MissingRules(decision).empty() && !approval) {
    // Finds the plan that would run if it were allowed: people approve or deny this plan.
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
    return ours ? std::move(admitted).error() : Error::Denied(admitted.error().message);
  }
  if (approval && PlanDigest(job.request_digest, *admitted) != approval->plan_digest) {
    return Error::Denied(
        "approval " + approval->id +
        " is for another plan: its source or the policy changed after it was asked for; submit it again");
  }
  return std::optional<verify::Admitted>(*std::move(admitted));
}

Status JobRunner::AskPeople(const policy::Decision& decision, const verify::Admitted& admitted) {
  const store::Job& job = live_->job();
  const int64_t now = UnixMillis();
  verify::ApprovalRequest question;
  question.binding = {RandomHex(), job.id, PlanDigest(job.request_digest, admitted), RandomHex()};
  question.tenant = job.tenant;
  question.requested_at = UtcTime(now);
  question.expires_at = UtcTime(now + context_.config.approval_ttl_ms);
  question.submitter = {job.submitter, verify::Role::kSubmitter};
  question.quorum = context_.config.approval_quorum;
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
  approval.expires_ms = now + context_.config.approval_ttl_ms;
  CAISSON_TRY_VOID(context_.audit_writer->Record(
      job, TheService(), audit::ApprovalStep{approval.id, approval.plan_digest, std::nullopt, ""}));
  live_->AddEvent("approval_requested", {{"approval_id", approval.id},
                                         {"plan_digest", approval.plan_digest},
                                         {"expires_at", question.expires_at},
                                         {"decision", policy::ToJson(decision)}});
  const std::unique_lock order = live_->LockEvents();
  CAISSON_TRY_VOID(context_.store->AwaitApproval(live_->lease(), approval, live_->TakeEvents()));
  context_.changes->Notify(job.id);
  return {};
}

Result<std::vector<std::string>> JobRunner::UseApproval(const store::Approval& approval) {
  const store::Job& job = live_->job();
  if (approval.state != store::ApprovalState::kGranted || approval.job_id != job.id)
    return Error::Denied("approval " + approval.id + " was not granted to this job");
  // SECURITY: an approval is used once, whatever happens later; the store refuses a second use.
  if (!approval.used) CAISSON_TRY_VOID(context_.store->UseApproval(live_->lease(), approval.id));
  CAISSON_TRY(const verify::Approval document, verify::ParseApproval(approval.document));
  std::vector<std::string> rules;
  for (const verify::RequiredApproval& required : std::get<verify::ApprovalRequest>(document).required)
    rules.push_back(required.kind);
  return rules;
}

}  // namespace caisson::service
