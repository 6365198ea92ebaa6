// One attempt at one job, from its claim to its end in the store. Runs: a worker's thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "service/live_jobs.h"
#include "service/parts.h"
#include "verify/request.h"
#include "verify/result.h"

namespace caisson::service {

class JobRunner {
 public:
  JobRunner(Parts& parts, std::shared_ptr<LiveJob> live) : parts_(parts), live_(std::move(live)) {}

  // When it returns, the job has ended, waits for people, was queued again, or belongs to somebody else.
  void Run();

 private:
  Status Attempt();
  Result<verify::Request> ReadRequest() const;
  // Errors: kInvalid for what the archive is to blame for.
  Status UnpackArchive(verify::Request& request) const;
  // The admitted request; nothing when the job was dealt with instead: rejected, or people were asked.
  Result<std::optional<verify::Admitted>> Admit(const verify::Request& request);
  Status AskPeople(const policy::Decision& decision, const verify::Admitted& admitted);
  // The rules that people allowed this very plan to pass; kDenied when what they allowed was another.
  Result<std::vector<std::string>> UseApproval(const store::Approval& approval);
  Status Reject(const verify::Request& request, const Error& error, const policy::Decision& decision);
  Status Deliver(const verify::VerificationResult& result);
  Status End(const verify::VerificationResult& result);

  Parts& parts_;
  std::shared_ptr<LiveJob> live_;
};

// An attempt came to nothing: queues the job for the next one, or gives it up. `result` is of status error, or empty.
// Used by workers for what they know of, and by the reconciler for those that are lost.
Status EndAttempt(Parts& parts, const store::Job& job, verify::RetryCause cause, const std::string& error,
                  const std::string& result, std::vector<store::Event> events);

// The end of a job that never ran, because people or the clock said no, or because it is not wanted any more. An event
// of type `event` goes before the result's.
Result<store::End> RejectedEnd(Parts& parts, const store::Job& job, const std::string& why, const char* event,
                               nlohmann::json members);
Result<store::End> CancelledEnd(Parts& parts, const store::Job& job, const std::string& why);

// The end of a job that a result document describes. Large documents go to the blobs.
Result<store::End> MakeEnd(Parts& parts, const verify::VerificationResult& result, store::JobState state);

}  // namespace caisson::service
