// The Service over a store, blobs and workers.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "service/service.h"
#include "service/service_context.h"

namespace caisson::service {

class Workers;

// kDenied when the caller lacks the right.
Status Require(const Caller& caller, Right right);

class Engine : public Service {
 public:
  // Both outlive it. `workers` are woken when there is something to do.
  Engine(ServiceContext& context, Workers& workers) : context_(context), workers_(workers) {}

  Result<store::Submitted> Submit(const Caller& caller, std::string_view body,
                                  const std::string& idempotency_key) override;
  Result<JobDetails> Find(const Caller& caller, const std::string& job_id) override;
  Result<std::vector<store::Job>> List(const Caller& caller, store::JobFilter filter) override;
  Result<Document> ResultOf(const Caller& caller, const std::string& job_id) override;
  Result<std::string> AttestationOf(const Caller& caller, const std::string& job_id) override;
  Result<std::vector<store::Event>> Events(const Caller& caller, const std::string& job_id, int64_t after_seq,
                                           int64_t limit) override;
  Result<Log> Logs(const Caller& caller, const std::string& job_id, int64_t from_offset, int64_t max_bytes) override;
  Result<Artifact> OpenArtifact(const Caller& caller, const std::string& job_id, const std::string& path) override;
  Result<store::Job> Cancel(const Caller& caller, const std::string& job_id, const std::string& reason) override;
  Result<std::vector<store::Approval>> Approvals(const Caller& caller,
                                                 std::optional<store::ApprovalState> state) override;
  Result<store::Approval> FindApproval(const Caller& caller, const std::string& approval_id) override;
  Result<store::Approval> Answer(const Caller& caller, const std::string& approval_id, bool grant,
                                 const std::string& plan_digest, const std::string& nonce,
                                 const std::string& reason) override;
  Status RoomForBody(const Caller& caller, int64_t bytes) override;
  Result<std::vector<store::Job>> DeadLetters(const Caller& caller, store::JobFilter filter) override;
  Result<std::string> DeadLetter(const Caller& caller, const std::string& job_id) override;
  Result<store::Job> Requeue(const Caller& caller, const std::string& job_id) override;
  Status Drop(const Caller& caller, const std::string& job_id) override;
  Result<std::string> PutArchive(const Caller& caller, int file, int64_t bytes) override;
  Result<std::string> PutArchive(const Caller& caller, std::string_view bytes) override;
  std::unique_ptr<Subscription> Watch(const std::string& job_id, std::function<void()> changed) override;
  SessionService* Sessions() override { return sessions_; }
  Readiness Ready() override;
  std::string Metrics() override;

  // Called before the first request. `sessions` outlives it; `count` brings its metrics up to date.
  void SetSessions(SessionService* sessions, std::function<void()> count) {
    sessions_ = sessions;
    count_sessions_ = std::move(count);
  }

  // From now on new jobs are refused; existing jobs can still be queried.
  void StopTaking() { taking_ = false; }

 private:
  void TellPools();
  Result<store::Job> OwnJob(const Caller& caller, const std::string& job_id);
  Result<store::Job> MakeJob(const Caller& caller, std::string_view body, const std::string& idempotency_key);
  Result<Document> ResultDocument(const store::Job& job);
  // Facts about the end of a job that are not in its result: the members of its last event of type "result".
  Result<nlohmann::json> EndOf(const std::string& job_id);
  // The result without the output.
  Result<nlohmann::json> ResultWithoutOutput(const store::Job& job);
  void RememberFull(const std::string& tenant);
  Result<Log> KeptLog(const store::Job& job, int64_t from_offset, int64_t max_bytes);

  ServiceContext& context_;
  Workers& workers_;
  SessionService* sessions_ = nullptr;
  std::function<void()> count_sessions_;
  std::atomic<bool> taking_{true};
  std::mutex full_mutex_;
  std::map<std::string, int64_t> full_until_ns_;  // tenants whose queue was full lately
};

}  // namespace caisson::service
