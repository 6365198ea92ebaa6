#include "service/engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "audit/audit_record.h"
#include "base/clock.h"
#include "base/words.h"
#include "policy/syntax.h"
#include "service/documents.h"
#include "service/job_runner.h"
#include "service/workers.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"

namespace caisson::service {

using nlohmann::json;

namespace {

Error NoSuchJob(const std::string& job_id) { return Error::NotFound("there is no job " + Quoted(job_id)); }

// SECURITY: a path of this machine is for those who run it. What policy makes of the path comes on top.
Status RefusePaths(const Caller& caller, const verify::Request& request) {
  if (caller.Has(Right::kAdmin)) return {};
  if (request.source.path)
    return Error::Denied("source.path: paths of the service's machine are for its admins; send files or an archive");
  if (!request.mounts.empty())
    return Error::Denied("mounts: paths of the service's machine are for its admins; send files or an archive");
  return {};
}

}  // namespace

Result<std::string> ReadWhole(int fd, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Error::System(count < 0 ? errno : EIO, "read a kept result");
    done += static_cast<size_t>(count);
  }
  return text;
}

Status Require(const Caller& caller, Right right) {
  if (caller.Has(right)) return {};
  return Error::Denied(std::string("this needs the right \"") + kRightNames[static_cast<size_t>(right)] +
                       "\", which the caller does not have");
}

Result<store::Job> Engine::MakeJob(const Caller& caller, std::string_view body, const std::string& idempotency_key) {
  verify::JsonBounds bounds;
  bounds.max_bytes = verify::kMaxRequestBytes;
  CAISSON_TRY(json document, verify::ReadJson(body, bounds));
  CAISSON_TRY(verify::Request request, verify::ReadRequest(document, ""));
  if (!idempotency_key.empty()) {
    if (const policy::Fault fault = policy::FaultInIdempotencyKey(idempotency_key))
      return Error::Invalid("Idempotency-Key: " + *fault);
    if (!request.idempotency_key.empty() && request.idempotency_key != idempotency_key)
      return Error::Invalid("idempotency_key: differs from the Idempotency-Key header");
    request.idempotency_key = idempotency_key;
  }
  CAISSON_TRY_VOID(RefusePaths(caller, request));
  std::vector<store::Blob> blobs;
  if (request.source.archive) {
    const std::string sha256 = request.source.archive->substr(request.source.archive->find(':') + 1);
    int64_t bytes = 0;
    if (!parts_.blobs->Get(sha256, &bytes))
      return Error::Invalid("source.archive: the service has no such archive; send it first (POST /v1/archives)");
    blobs.push_back({sha256, bytes});
  }
  if (!request.callback_url.empty() && parts_.config.callback_secret.empty())
    return Error::Invalid("callback_url: this service makes no callbacks; its operator must set callback_secret");
  store::Job job;
  job.submitted_ms = UnixMillis();
  job.id = NewJobId(job.submitted_ms);
  job.tenant = caller.tenant;
  job.submitter = caller.subject;
  job.request_id = request.request_id;
  job.request_digest = RequestDigest(document);
  job.request = document.dump();
  job.idempotency_key = request.idempotency_key;
  job.labels.assign(request.labels.begin(), request.labels.end());
  job.callback_url = request.callback_url;
  job.blobs = std::move(blobs);
  job.priority = request.priority;
  job.max_attempts = parts_.config.max_attempts;
  if (!request.deadline.empty()) {
    job.deadline_ms = policy::SecondsSinceEpoch(request.deadline) * 1'000;
    if (job.deadline_ms <= job.submitted_ms) return Error::Invalid("deadline: has passed already");
  }
  return job;
}

Result<store::Submitted> Engine::Submit(const Caller& caller, std::string_view body,
                                        const std::string& idempotency_key) {
  const auto counted = [&](const char* outcome) {
    parts_.metrics.Add("caisson_submitted_total", std::string("outcome=\"") + outcome + "\"");
  };
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  if (!taking_) return Error::Exhausted("the service is shutting down; try again soon");
  if (!parts_.trail->Usable())
    return Error::Exhausted("the audit log cannot be written, so no job is taken; free space on its disk");
  Result<store::Job> job = MakeJob(caller, body, idempotency_key);
  if (!job) {
    counted(job.error().kind == ErrorKind::kDenied ? "denied" : "invalid");
    return std::move(job).error();
  }
  const std::vector<store::Event> events = {
      {0, job->submitted_ms, "queued", Dump({{"tenant", job->tenant}, {"priority", job->priority}})}};
  Result<store::Submitted> submitted =
      parts_.store->Submit(*job, {parts_.config.max_queue, parts_.config.max_queue_per_tenant},
                           job->submitted_ms + parts_.config.idempotency_ttl_ms, events);
  if (!submitted) {
    counted(submitted.error().kind == ErrorKind::kConflict ? "conflict" : "full");
    return submitted;
  }
  counted(submitted->existed ? "existing" : "new");
  if (!submitted->existed) workers_.Wake();
  return submitted;
}

Result<store::Job> Engine::OwnJob(const Caller& caller, const std::string& job_id) {
  Result<store::Job> job = parts_.store->Find(job_id);
  if (!job && job.error().kind == ErrorKind::kNotFound) return NoSuchJob(job_id);
  // SECURITY: whether another tenant has such a job is nobody's business.
  if (job && job->tenant != caller.tenant && !caller.Has(Right::kAdmin)) return NoSuchJob(job_id);
  return job;
}

Result<JobDetails> Engine::Find(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  JobDetails details;
  CAISSON_TRY(details.job, OwnJob(caller, job_id));
  CAISSON_TRY(details.attempts, parts_.store->Attempts(job_id));
  return details;
}

Result<std::vector<store::Job>> Engine::List(const Caller& caller, store::JobFilter filter) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  if (!caller.Has(Right::kAdmin)) filter.tenant = caller.tenant;
  return parts_.store->List(filter);
}

Result<std::string> Engine::ResultText(const store::Job& job) {
  if (!store::IsEnd(job.state))
    return Error::Conflict("job " + job.id + " has no result yet; it is " + store::Name(job.state));
  if (!job.result.empty()) return job.result;
  if (job.result_blob.empty())
    return Error::Conflict("job " + job.id + " came to no result; see its dead letter: /v1/dlq/" + job.id);
  int64_t bytes = 0;
  CAISSON_TRY(const UniqueFd file, parts_.blobs->Get(job.result_blob, &bytes));
  return ReadWhole(file.get(), bytes);
}

Result<std::string> Engine::ResultOf(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  return ResultText(job);
}

Result<std::vector<store::Event>> Engine::Events(const Caller& caller, const std::string& job_id, int64_t after_seq,
                                                 int64_t limit) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  CAISSON_TRY(std::vector<store::Event> events, parts_.store->Events(job_id, after_seq, limit));
  for (store::Event& event : events) {
    // The result is kept once, and put into its event on the way out.
    if (event.type != "result") continue;
    const Result<std::string> text = ResultText(job);
    if (text) event.body = "{\"result\":" + *text + "}";
  }
  return events;
}

Result<Log> Engine::Logs(const Caller& caller, const std::string& job_id, int64_t from_offset) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  // Looked for before the store is: a job that ends in between is then found there.
  const std::shared_ptr<LiveJob> live = parts_.live.Find(job_id);
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  if (live != nullptr && !store::IsEnd(job.state)) return live->ReadLog(from_offset);
  Log log;
  log.next_offset = from_offset;
  log.complete = store::IsEnd(job.state);
  if (!log.complete) return log;
  if (live != nullptr) {
    log = live->ReadLog(from_offset);
    log.complete = true;
    return log;
  }
  const Result<std::string> text = ResultText(job);
  if (!text) return log;
  const json result = json::parse(*text);
  int64_t offset = 0;
  for (const char* stream : {"stdout", "stderr"}) {
    std::string bytes = result.value(stream, "");
    const auto size = static_cast<int64_t>(bytes.size());
    if (offset + size > from_offset) {
      const int64_t skipped = std::max<int64_t>(from_offset - offset, 0);
      log.chunks.push_back({offset + skipped, stream, "", bytes.substr(static_cast<size_t>(skipped))});
    }
    offset += size;
  }
  log.next_offset = std::max(offset, from_offset);
  return log;
}

Result<Artifact> Engine::OpenArtifact(const Caller& caller, const std::string& job_id, const std::string& path) {
  CAISSON_TRY(const std::string text, ResultOf(caller, job_id));
  const json result = json::parse(text);
  const std::string inside = path.rfind('/', 0) == 0 ? path : "/" + path;
  for (const json& one : result["artifacts"]) {
    if (one["path"] != inside) continue;
    Artifact artifact;
    artifact.path = inside;
    artifact.sha256 = one["sha256"];
    CAISSON_TRY(artifact.file, parts_.blobs->Get(artifact.sha256, &artifact.bytes));
    return artifact;
  }
  return Error::NotFound("job " + job_id + " has no artifact " + Quoted(path));
}

Result<store::Job> Engine::Cancel(const Caller& caller, const std::string& job_id, const std::string& reason) {
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  if (store::IsEnd(job.state))
    return Error::Conflict("job " + job_id + " has ended already: " + store::Name(job.state));
  const std::string why = reason.empty() ? "cancelled by " + caller.subject : audit::OneLine(reason);
  CAISSON_TRY(const store::End end, CancelledEnd(parts_, job, why));
  CAISSON_TRY_VOID(parts_.trail->Record(job, {caller.subject, verify::Role::kSubmitter}, audit::Cancel{why}));
  CAISSON_TRY(store::Job cancelled, parts_.store->Cancel(job_id, why, end));
  // One that runs elsewhere hears of it when its lease is renewed.
  if (const std::shared_ptr<LiveJob> live = parts_.live.Find(job_id)) live->RequestStop(Stop::kCancelled);
  parts_.changes->Notify(job_id);
  return cancelled;
}

std::unique_ptr<Subscription> Engine::Watch(const std::string& job_id, std::function<void()> changed) {
  return parts_.changes->Watch(job_id, std::move(changed));
}

Result<std::string> Engine::PutArchive(const Caller& caller, std::string_view bytes) {
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  return parts_.blobs->Put(bytes);
}

Readiness Engine::Ready() {
  Readiness readiness;
  const auto check = [&](const char* name, bool good, const std::string& fault) {
    readiness.checks.emplace_back(name, good ? "ok" : fault);
    return good;
  };
  const Status store = parts_.store->Ping();
  bool ready = check("store", bool(store), store ? "" : store.error().message);
  ready &= check("audit", parts_.trail->Usable(), "the audit log cannot be written; free space on its disk");
  ready &= check("launcher", parts_.runtime_ready(), "no launcher answers; it is being started again");
  ready &= check("memory", workers_.MemoryFits(), "not enough free memory for another job");
  ready &= check("taking", taking_, "shutting down");
  readiness.ready = ready;
  return readiness;
}

void Engine::TellPools() {
  const Result<runtime::PoolsReport> report = parts_.runtime->Pools();
  if (!report) return;  // its restarts are counted elsewhere
  for (const runtime::PoolReport& pool : report->pools) {
    const std::string start = "start=\"" + pool.start + "\"";
    parts_.metrics.Set("caisson_pool_members", start + ",state=\"ready\"", static_cast<double>(pool.ready));
    parts_.metrics.Set("caisson_pool_members", start + ",state=\"preparing\"", static_cast<double>(pool.preparing));
    parts_.metrics.Follow("caisson_pool_taken_total", start, static_cast<double>(pool.taken));
    parts_.metrics.Follow("caisson_pool_missed_total", start, static_cast<double>(pool.missed));
    parts_.metrics.Follow("caisson_pool_died_total", start, static_cast<double>(pool.died));
  }
  parts_.metrics.Follow("caisson_interpreters_died_total", "", static_cast<double>(report->interpreters_died));
}

std::string Engine::Metrics() {
  const Result<store::Counts> counts = parts_.store->Count(UnixMillis());
  if (counts) {
    for (const char* state : store::kJobStateNames) {
      const auto found = counts->by_state.find(state);
      parts_.metrics.Set("caisson_jobs", std::string("state=\"") + state + "\"",
                         found == counts->by_state.end() ? 0 : static_cast<double>(found->second));
    }
    for (const auto& [tenant, waiting] : counts->waiting_by_tenant)
      parts_.metrics.Set("caisson_queue_waiting", "tenant=\"" + LabelValue(tenant) + "\"",
                         static_cast<double>(waiting));
    const int64_t oldest = counts->oldest_queued_ms;
    parts_.metrics.Set("caisson_queue_oldest_seconds", "",
                       oldest == 0 ? 0 : static_cast<double>(UnixMillis() - oldest) / 1e3);
    parts_.metrics.Set("caisson_approvals_pending", "", static_cast<double>(counts->approvals_pending));
  } else {
    parts_.metrics.Add("caisson_store_errors_total");
  }
  TellPools();
  parts_.metrics.Set("caisson_blob_bytes", "", static_cast<double>(parts_.blobs->bytes()));
  return parts_.metrics.Text();
}

}  // namespace caisson::service
