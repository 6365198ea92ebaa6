// The Service over a store, blobs and workers.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "service/parts.h"
#include "service/service.h"

namespace caisson::service {

class Workers;

// All of a kept file.
Result<std::string> ReadWhole(int fd, int64_t bytes);

// kDenied when the caller lacks the right.
Status Require(const Caller& caller, Right right);

class Engine : public Service {
 public:
  // Both outlive it. `workers` are woken when there is something to do.
  Engine(Parts& parts, Workers& workers) : parts_(parts), workers_(workers) {}

  Result<store::Submitted> Submit(const Caller& caller, std::string_view body,
                                  const std::string& idempotency_key) override;
  Result<JobDetails> Find(const Caller& caller, const std::string& job_id) override;
  Result<std::vector<store::Job>> List(const Caller& caller, store::JobFilter filter) override;
  Result<std::string> ResultOf(const Caller& caller, const std::string& job_id) override;
  Result<std::string> AttestationOf(const Caller& caller, const std::string& job_id) override;
  Result<std::vector<store::Event>> Events(const Caller& caller, const std::string& job_id, int64_t after_seq,
                                           int64_t limit) override;
  Result<Log> Logs(const Caller& caller, const std::string& job_id, int64_t from_offset) override;
  Result<Artifact> OpenArtifact(const Caller& caller, const std::string& job_id, const std::string& path) override;
  Result<store::Job> Cancel(const Caller& caller, const std::string& job_id, const std::string& reason) override;
  Result<std::vector<store::Approval>> Approvals(const Caller& caller,
                                                 std::optional<store::ApprovalState> state) override;
  Result<store::Approval> FindApproval(const Caller& caller, const std::string& approval_id) override;
  Result<store::Approval> Answer(const Caller& caller, const std::string& approval_id, bool grant,
                                 const std::string& plan_digest, const std::string& nonce,
                                 const std::string& reason) override;
  Result<std::vector<store::Job>> DeadLetters(const Caller& caller, store::JobFilter filter) override;
  Result<std::string> DeadLetter(const Caller& caller, const std::string& job_id) override;
  Result<store::Job> Requeue(const Caller& caller, const std::string& job_id) override;
  Status Drop(const Caller& caller, const std::string& job_id) override;
  Result<std::string> PutArchive(const Caller& caller, std::string_view bytes) override;
  std::unique_ptr<Subscription> Watch(const std::string& job_id, std::function<void()> changed) override;
  Readiness Ready() override;
  std::string Metrics() override;

  // From now on nothing is taken; what is there can still be asked for.
  void StopTaking() { taking_ = false; }

 private:
  void TellPools();
  Result<store::Job> OwnJob(const Caller& caller, const std::string& job_id);
  Result<store::Job> MakeJob(const Caller& caller, std::string_view body, const std::string& idempotency_key);
  Result<std::string> ResultText(const store::Job& job);

  Parts& parts_;
  Workers& workers_;
  std::atomic<bool> taking_{true};
};

}  // namespace caisson::service
