// The store over a database: every function of store/store.h as one transaction. Which database is the business of
// sqlite/ and postgres/.
#pragma once

#include <memory>
#include <utility>

#include "store/sql/session.h"
#include "store/store.h"

namespace caisson::store::sql {

class SqlStore final : public Store {
 public:
  explicit SqlStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  // submitting.cc
  Result<Submitted> Submit(const Job& job, const QueueBounds& bounds, int64_t key_expires_ms,
                           const std::vector<Event>& events) override;
  // reading.cc
  Result<Job> Find(const std::string& job_id) override;
  Result<std::vector<Job>> List(const JobFilter& filter) override;
  Result<std::vector<Attempt>> Attempts(const std::string& job_id) override;
  Result<std::vector<Event>> Events(const std::string& job_id, int64_t after_seq, int64_t limit) override;
  Result<Counts> Count(int64_t now_ms) override;
  Result<std::vector<std::string>> BlobsInUse(const std::vector<std::string>& sha256,
                                              const std::string& tenant) override;
  Status Ping() override { return database_->Ping(); }
  std::string Description() const override { return database_->Description(); }
  // claiming.cc
  Result<std::vector<Job>> Claim(const ClaimOptions& options) override;
  Result<std::vector<LeaseFate>> Renew(const std::vector<Lease>& leases, int64_t until_ms) override;
  Result<std::vector<Job>> LapsedLeases(int64_t now_ms, int64_t limit) override;
  Result<std::vector<Job>> TakeOverdue(const ClaimOptions& options) override;
  // working.cc
  Status Advance(const Lease& lease, JobState state, int64_t now_ms, const std::vector<Event>& events) override;
  Status AppendEvents(const std::string& job_id, const std::vector<Event>& events) override;
  Status Finish(const Lease& lease, const End& end) override;
  Status Retry(const Lease& lease, const Attempt& ended, int64_t not_before_ms,
               const std::vector<Event>& events) override;
  Status GiveUp(const Lease& lease, const Attempt& ended, const End& end) override;
  Status Release(const Lease& lease) override;
  Status Postpone(const Lease& lease, int64_t not_before_ms, const std::vector<Event>& events) override;
  Result<Job> Cancel(const std::string& job_id, const std::string& reason, const End& end,
                     const AuditNote& note) override;
  Result<Job> Requeue(const std::string& job_id, int64_t now_ms, const std::vector<Event>& events) override;
  // approving.cc
  Status AwaitApproval(const Lease& lease, const Approval& approval, const std::vector<Event>& events) override;
  Result<Approval> FindApproval(const std::string& approval_id) override;
  Result<std::vector<Approval>> ListApprovals(const std::string& tenant, std::optional<ApprovalState> state,
                                              int64_t limit) override;
  Result<Approval> AnswerApproval(const std::string& approval_id, const ApprovalAnswer& answer, const End& end,
                                  const std::vector<Event>& events, const AuditNote& note) override;
  Status ExpireApproval(const std::string& approval_id, const End& end, const AuditNote& note) override;
  Result<std::vector<Approval>> ExpiredApprovals(int64_t now_ms, int64_t limit) override;
  Status UseApproval(const Lease& lease, const std::string& approval_id) override;
  // upkeep.cc
  Result<std::vector<AuditNote>> AuditNotes(const std::string& node, int64_t limit) override;
  Result<bool> HasAuditNotes(const std::string& job_id) override;
  Status ForgetAuditNotes(const std::vector<std::string>& ids) override;
  Result<std::vector<Callback>> ClaimCallbacks(int64_t now_ms, int64_t until_ms, int64_t limit,
                                               const std::vector<std::string>& without) override;
  Status SettleCallback(const std::string& job_id, int64_t tries, int64_t next_ms) override;
  Status Remove(const std::string& job_id, const AuditNote& note) override;
  Result<int64_t> Purge(int64_t finished_before_ms, int64_t now_ms, int64_t limit) override;

 private:
  // Write and Read for a function that gives something back: it begins with an empty T each time it is run.
  template <typename T, typename F>
  Result<T> Write(Durability durability, F function) {
    T given{};
    CAISSON_TRY_VOID(database_->Write(durability, [&](Session& session) {
      given = T{};
      return function(session, given);
    }));
    return given;
  }
  template <typename T, typename F>
  Result<T> Read(F function) {
    T given{};
    CAISSON_TRY_VOID(database_->Read([&](Session& session) -> Status {
      given = T{};
      return function(session, given);
    }));
    return given;
  }

  std::unique_ptr<Database> database_;
};

}  // namespace caisson::store::sql
