// Runs one attempt at one job, from its claim to its end in the store. Runs: a worker's thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "service/live_jobs.h"
#include "service/service_context.h"
#include "verify/request.h"
#include "verify/run_driver.h"

namespace caisson::service {

class JobRunner : private verify::AuditSink {
 public:
  JobRunner(ServiceContext& context, std::shared_ptr<LiveJob> live) : context_(context), live_(std::move(live)) {}

  // When it returns, the job has ended, waits for an approval, was queued again, or belongs to another worker.
  void Run();

 private:
  Status Attempt();
  // Errors: kInvalid when the archive is at fault.
  Status UnpackArchive(verify::Request& request) const;
  Status WriteNotesFirst();
  // Returns the admitted request, or nothing when the job now waits for an approval. kDenied: `decision` gives the
  // reason if policy made a decision.
  Result<std::optional<verify::Admitted>> JudgeRequest(const verify::Request& request, policy::Decision& decision);
  Status AskPeople(const policy::Decision& decision, const verify::Admitted& admitted);
  // Returns the rules that people allowed this exact plan to pass; kDenied when they allowed a different plan.
  Result<std::vector<std::string>> UseApproval(const store::Approval& approval);
  Status Deliver(const verify::RunDriver& driver, verify::VerificationResult result);
  Status End(const verify::RunDriver& driver, const verify::VerificationResult& result);
  // Adds members to the event that ends the job: the envelope over its result.
  Status Sign(const store::End& end, nlohmann::json& ending) const;

  Status Admitted(const verify::Request& request, const verify::Admitted& admitted) override;
  Status Rejected(const verify::Request& request, const Error& error) override;
  Status Ended(const verify::VerificationResult& result, const std::string& digest) override;

  ServiceContext& context_;
  std::shared_ptr<LiveJob> live_;
};

// Ends an attempt without a result: queues the job for the next attempt, or gives it up. `result` has status error, or
// is null. Workers call it for failures that they notice, the reconciler for attempts whose worker is lost.
Status EndAttempt(ServiceContext& context, const store::Job& job, verify::RetryCause cause, const Error& error,
                  const verify::VerificationResult* result, std::vector<store::Event> events);

// True when the machine or its operator is at fault: a full disk, a used-up quota of all tenants, no descriptors or
// memory, a launcher that is not there. No job is to blame, and no job is given up for it: see PostponeAttempt.
bool IsOperatorsFault(const ServiceContext& context, const Error& error);
// Queues the job for a later turn as if this attempt had not happened.
Status PostponeAttempt(ServiceContext& context, const store::Job& job, const Error& error,
                       std::vector<store::Event> events);

// Returns the text that a tenant sees about failures of the service. The error's own text may name paths of this
// machine, so it goes to the log.
std::string TellTenant(const store::Job& job, const Error& error);

// Makes the end of a job that never ran because an approver denied it, its time ran out, or it is no longer wanted. An
// event of type `event` precedes the result's event.
Result<store::End> RejectedEnd(ServiceContext& context, const store::Job& job, const std::string& why,
                               const char* event, nlohmann::json members);
Result<store::End> CancelledEnd(ServiceContext& context, const store::Job& job, const std::string& why);

// Makes the end of a job that a result document describes. Large documents go to the tenant's blobs; when its quota has
// no room, the output and the artifacts are left out and the result says so. `ending` receives what Engine::EndOf
// returns later.
Result<store::End> MakeEnd(ServiceContext& context, const std::string& tenant, const verify::VerificationResult& result,
                           store::JobState state, nlohmann::json& ending);

}  // namespace caisson::service
