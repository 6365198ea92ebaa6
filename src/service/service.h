// The verification service: everything caissond can be asked, whoever asks and by whatever way. The HTTP API is one
// caller, the tests another.
//
// Rights are judged here, once, and not by the ways in: every function gets the Caller and answers kDenied when the
// caller lacks the right, kNotFound for a job of a tenant that is not his. A body that cannot be read is kInvalid with
// the field's path, a request that does not fit the state of its job kConflict, a full queue kExhausted.
//
// Functions may be called from any thread and block for as long as the store does.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "store/store.h"

namespace caisson::service {

// kMetrics is for scrapers: the numbers name all tenants, and nothing else may be asked with it.
enum class Right : uint8_t { kSubmit, kRead, kApprove, kAdmin, kMetrics };
inline constexpr std::array<const char*, 5> kRightNames = {"submit", "read", "approve", "admin", "metrics"};

// Who asks, as authentication established it. Nothing in it comes from the body of a request.
struct Caller {
  std::string subject;  // "uid:1000", "token:ci"
  std::string tenant;   // his jobs; an admin sees all tenants'
  std::set<Right> rights;

  // An admin has every right.
  bool Has(Right right) const { return rights.count(right) != 0 || rights.count(Right::kAdmin) != 0; }
};

struct JobDetails {
  store::Job job;
  std::vector<store::Attempt> attempts;
};

// A piece of what a running job writes, as it comes.
struct LogChunk {
  int64_t offset = 0;  // of the first byte, in the order of arrival
  std::string stream;  // "stdout", "stderr"
  std::string check;
  std::string bytes;
};
struct Log {
  std::vector<LogChunk> chunks;
  int64_t next_offset = 0;
  bool complete = false;  // the job ended: nothing follows
};

struct Artifact {
  std::string path;
  std::string sha256;
  int64_t bytes = 0;
  UniqueFd file;
};

// Ends the watching when it goes.
class Subscription {
 public:
  virtual ~Subscription() = default;
};

struct Readiness {
  bool ready = false;
  std::vector<std::pair<std::string, std::string>> checks;  // name → "ok" or what is wrong
};

class Service {
 public:
  virtual ~Service() = default;

  // `body` is a verification request. `idempotency_key`, from the header, must agree with the body's if both are given.
  virtual Result<store::Submitted> Submit(const Caller& caller, std::string_view body,
                                          const std::string& idempotency_key) = 0;
  virtual Result<JobDetails> Find(const Caller& caller, const std::string& job_id) = 0;
  virtual Result<std::vector<store::Job>> List(const Caller& caller, store::JobFilter filter) = 0;
  // The result document. kConflict while the job has not ended, and for a dead letter without one.
  virtual Result<std::string> ResultOf(const Caller& caller, const std::string& job_id) = 0;
  // The DSSE envelope over the result; kNotFound where the service has no key.
  virtual Result<std::string> AttestationOf(const Caller& caller, const std::string& job_id) = 0;
  virtual Result<std::vector<store::Event>> Events(const Caller& caller, const std::string& job_id, int64_t after_seq,
                                                   int64_t limit) = 0;
  // What the last attempt wrote, live while it runs here, from the result afterwards.
  virtual Result<Log> Logs(const Caller& caller, const std::string& job_id, int64_t from_offset) = 0;
  // `path` is the one inside, with or without the slash in front.
  virtual Result<Artifact> OpenArtifact(const Caller& caller, const std::string& job_id, const std::string& path) = 0;
  virtual Result<store::Job> Cancel(const Caller& caller, const std::string& job_id, const std::string& reason) = 0;

  virtual Result<std::vector<store::Approval>> Approvals(const Caller& caller,
                                                         std::optional<store::ApprovalState> state) = 0;
  virtual Result<store::Approval> FindApproval(const Caller& caller, const std::string& approval_id) = 0;
  // `plan_digest` is what the approver saw: another one than the question's is kConflict.
  virtual Result<store::Approval> Answer(const Caller& caller, const std::string& approval_id, bool grant,
                                         const std::string& plan_digest, const std::string& nonce,
                                         const std::string& reason) = 0;

  virtual Result<std::vector<store::Job>> DeadLetters(const Caller& caller, store::JobFilter filter) = 0;
  // The dead letter as schemas/runner_api_contract.schema.json spells it.
  virtual Result<std::string> DeadLetter(const Caller& caller, const std::string& job_id) = 0;
  virtual Result<store::Job> Requeue(const Caller& caller, const std::string& job_id) = 0;
  virtual Status Drop(const Caller& caller, const std::string& job_id) = 0;

  // An archive to be named by later requests; gives its SHA-256.
  virtual Result<std::string> PutArchive(const Caller& caller, std::string_view bytes) = 0;

  // `changed` is called, from any thread, soon after the job got a new event, new output or a new state. It must not
  // block. Changes made by another caissond on the same database show within a second.
  virtual std::unique_ptr<Subscription> Watch(const std::string& job_id, std::function<void()> changed) = 0;

  virtual Readiness Ready() = 0;
  virtual std::string Metrics() = 0;  // Prometheus text format
};

}  // namespace caisson::service
