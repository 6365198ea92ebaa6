// The interface of the verification service. The HTTP API is one caller, the tests are another.
//
// Rights are judged here, once, not in the API: every function gets the Caller and returns kDenied if the caller lacks
// the right, kNotFound for a job of another tenant. A body that cannot be read is kInvalid with the field's path, a
// request that does not fit the state of its job kConflict, a full queue kExhausted.
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

// kMetrics is for scrapers: the metrics name all tenants, and the right permits nothing else.
enum class Right : uint8_t { kSubmit, kRead, kApprove, kAdmin, kMetrics };
inline constexpr std::array<const char*, 5> kRightNames = {"submit", "read", "approve", "admin", "metrics"};

// The authenticated caller. Nothing in it comes from the body of a request.
struct Caller {
  std::string subject;  // "uid:1000", "token:ci"
  std::string tenant;   // the caller's tenant; an admin sees all tenants
  std::set<Right> rights;

  // An admin has every right.
  bool Has(Right right) const { return rights.count(right) != 0 || rights.count(Right::kAdmin) != 0; }
};

// A document that may be large: text, or a file with it.
struct Document {
  std::string text;
  UniqueFd file;  // none: `text`
  int64_t bytes = 0;
};

struct JobDetails {
  store::Job job;
  std::vector<store::Attempt> attempts;
};

// A piece of a job's output.
struct LogChunk {
  int64_t offset = 0;  // of the first byte, in the order of arrival
  std::string stream;  // "stdout", "stderr"
  std::string bytes;
};
struct Log {
  std::vector<LogChunk> chunks;
  int64_t next_offset = 0;
  bool complete = false;  // the job ended, and nothing follows `next_offset`
};

struct Artifact {
  std::string path;
  std::string sha256;
  int64_t bytes = 0;
  UniqueFd file;
};

// Ends the subscription in its destructor.
class Subscription {
 public:
  virtual ~Subscription() = default;
};

class SessionService;  // service/session_service.h

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
  virtual Result<Document> ResultOf(const Caller& caller, const std::string& job_id) = 0;
  // The DSSE envelope over the result; kNotFound where the service has no key.
  virtual Result<std::string> AttestationOf(const Caller& caller, const std::string& job_id) = 0;
  // An event of type "result" comes without the result: ResultOf has it.
  virtual Result<std::vector<store::Event>> Events(const Caller& caller, const std::string& job_id, int64_t after_seq,
                                                   int64_t limit) = 0;
  // The output of the last attempt: live while it runs here, afterwards the part that was kept; about `max_bytes` at
  // most.
  virtual Result<Log> Logs(const Caller& caller, const std::string& job_id, int64_t from_offset, int64_t max_bytes) = 0;
  // `path` is the one inside, with or without the slash in front.
  virtual Result<Artifact> OpenArtifact(const Caller& caller, const std::string& job_id, const std::string& path) = 0;
  virtual Result<store::Job> Cancel(const Caller& caller, const std::string& job_id, const std::string& reason) = 0;

  virtual Result<std::vector<store::Approval>> Approvals(const Caller& caller,
                                                         std::optional<store::ApprovalState> state) = 0;
  virtual Result<store::Approval> FindApproval(const Caller& caller, const std::string& approval_id) = 0;
  // `plan_digest` is the plan that the approver saw; if it differs from the approval's, kConflict.
  virtual Result<store::Approval> Answer(const Caller& caller, const std::string& approval_id, bool grant,
                                         const std::string& plan_digest, const std::string& nonce,
                                         const std::string& reason) = 0;

  virtual Result<std::vector<store::Job>> DeadLetters(const Caller& caller, store::JobFilter filter) = 0;
  // The dead letter as schemas/runner_api_contract.schema.json spells it.
  virtual Result<std::string> DeadLetter(const Caller& caller, const std::string& job_id) = 0;
  virtual Result<store::Job> Requeue(const Caller& caller, const std::string& job_id) = 0;
  virtual Status Drop(const Caller& caller, const std::string& job_id) = 0;

  // Whether a body of this size is worth reading: kExhausted when the tenant has no room for it, or was told a moment
  // ago that its queue is full. A guess in the caller's favour that does not block; what takes the body decides.
  virtual Status RoomForBody(const Caller& caller, int64_t bytes) = 0;

  // Stores an archive that later requests of the same tenant may name; returns its SHA-256. `file` is read from its
  // beginning.
  virtual Result<std::string> PutArchive(const Caller& caller, int file, int64_t bytes) = 0;
  virtual Result<std::string> PutArchive(const Caller& caller, std::string_view bytes) = 0;

  // `changed` is called, from any thread, soon after the job got a new event, new output or a new state. It must not
  // block. Changes made by another caissond on the same database show within a second.
  virtual std::unique_ptr<Subscription> Watch(const std::string& job_id, std::function<void()> changed) = 0;

  // Agent sessions; null where the service has none.
  virtual SessionService* Sessions() { return nullptr; }

  virtual Readiness Ready() = 0;
  virtual std::string Metrics() = 0;  // Prometheus text format
};

}  // namespace caisson::service
