#include "service/engine.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "audit/audit_record.h"
#include "base/clock.h"
#include "base/words.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "service/documents.h"
#include "service/job_runner.h"
#include "service/kept_request.h"
#include "service/workers.h"
#include "verify/digest.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"

namespace caisson::service {

using nlohmann::json;

namespace {

constexpr int64_t kMaxEventsOfAJob = 1'000'000;
// As long as a refused client is asked to wait (Retry-After).
constexpr int64_t kFullForNanos = 1'000'000'000;
constexpr size_t kMostFullTenants = 1024;
constexpr int64_t kCopyBytes = int64_t{256} << 10;

Error NoSuchJob(const std::string& job_id) { return Error::NotFound("there is no job " + Quoted(job_id)); }

// SECURITY: only operators may name a path of this machine. Policy judges the path in addition.
Status RefusePaths(const Caller& caller, const verify::Request& request) {
  if (caller.Has(Right::kAdmin)) return {};
  if (request.source.path)
    return Error::Denied("source.path: only admins may name paths of the service's machine; send files or an archive");
  if (!request.mounts.empty())
    return Error::Denied("mounts: only admins may name paths of the service's machine; send files or an archive");
  return {};
}

}  // namespace

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
    // SECURITY: only this tenant's archives. The answer does not depend on the archives of other tenants.
    int64_t bytes = 0;
    CAISSON_TRY(const Blobs* own, context_.blobs->Of(caller.tenant));
    if (!own->Keep(sha256) || !own->Get(sha256, &bytes))
      return Error::Invalid("source.archive: this tenant has sent no such archive; send it first (POST /v1/archives)");
    blobs.push_back({sha256, bytes});
  }
  if (!request.callback_url.empty() && context_.config.callback_secret.empty())
    return Error::Invalid("callback_url: this service makes no callbacks; its operator must set callback_secret");
  store::Job job;
  job.submitted_ms = UnixMillis();
  job.id = NewJobId(job.submitted_ms);
  job.tenant = caller.tenant;
  job.submitter = caller.subject;
  job.request_id = request.request_id;
  // A request may have megabytes, so it is copied as rarely as possible.
  request.source = {};
  std::string text = document.dump();
  job.request_digest =
      document.contains("idempotency_key") ? RequestDigest(std::move(document)) : verify::Sha256Hex(text);
  CAISSON_TRY(job.request, KeepRequest(context_, caller.tenant, std::move(text), blobs));
  job.idempotency_key = request.idempotency_key;
  job.labels.assign(request.labels.begin(), request.labels.end());
  job.callback_url = request.callback_url;
  job.blobs = std::move(blobs);
  job.priority = request.priority;
  job.max_attempts = context_.config.max_attempts;
  if (!request.deadline.empty()) {
    job.deadline_ms = policy::SecondsSinceEpoch(request.deadline) * 1'000;
    if (job.deadline_ms <= job.submitted_ms) return Error::Invalid("deadline: has passed already");
  }
  return job;
}

Result<store::Submitted> Engine::Submit(const Caller& caller, std::string_view body,
                                        const std::string& idempotency_key) {
  const auto counted = [&](const char* outcome) {
    context_.metrics.Add("caisson_submitted_total", std::string("outcome=\"") + outcome + "\"");
  };
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  if (!taking_) return Error::Exhausted("the service is shutting down; try again soon");
  if (!context_.audit_writer->Usable() || !context_.blobs->HasRoom()) {
    counted("full");
    return Error::Exhausted("the service has no room for another job; its operator must free space");
  }
  if (Status room = context_.blobs->HasRoom(caller.tenant); !room) {
    counted("full");
    return std::move(room).error();
  }
  // Parsed, checked and serialised again for the store.
  const ByteBudget::Share memory = context_.large_documents.Take(4 * static_cast<int64_t>(body.size()));
  Result<store::Job> job = MakeJob(caller, body, idempotency_key);
  if (!job) {
    counted(job.error().kind == ErrorKind::kDenied ? "denied" : "invalid");
    return std::move(job).error();
  }
  const std::vector<store::Event> events = {
      {0, job->submitted_ms, "queued", Dump({{"tenant", job->tenant}, {"priority", job->priority}})}};
  Result<store::Submitted> submitted =
      context_.store->Submit(*job, {context_.config.max_queue, context_.config.max_queue_per_tenant},
                             job->submitted_ms + context_.config.idempotency_ttl_ms, events);
  if (!submitted) {
    const bool conflicts = submitted.error().kind == ErrorKind::kConflict;
    counted(conflicts ? "conflict" : "full");
    if (!conflicts) RememberFull(caller.tenant);
    return submitted;
  }
  counted(submitted->existed ? "existing" : "new");
  if (!submitted->existed) workers_.Wake();
  return submitted;
}

void Engine::RememberFull(const std::string& tenant) {
  const std::lock_guard lock(full_mutex_);
  if (full_until_ns_.size() >= kMostFullTenants) full_until_ns_.clear();
  full_until_ns_[tenant] = MonotonicNanos() + kFullForNanos;
}

Status Engine::RoomForBody(const Caller& caller, int64_t bytes) {
  {
    const std::lock_guard lock(full_mutex_);
    const auto full = full_until_ns_.find(caller.tenant);
    if (full != full_until_ns_.end() && MonotonicNanos() < full->second)
      return Error::Exhausted("this tenant's queue is full; try again when some of its jobs have ended");
  }
  return context_.blobs->HasRoomFor(caller.tenant, bytes);
}

Result<store::Job> Engine::OwnJob(const Caller& caller, const std::string& job_id) {
  Result<store::Job> job = context_.store->Find(job_id);
  if (!job && job.error().kind == ErrorKind::kNotFound) return NoSuchJob(job_id);
  // SECURITY: the answer does not reveal whether another tenant has such a job.
  if (job && job->tenant != caller.tenant && !caller.Has(Right::kAdmin)) return NoSuchJob(job_id);
  return job;
}

Result<JobDetails> Engine::Find(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  JobDetails details;
  CAISSON_TRY(details.job, OwnJob(caller, job_id));
  CAISSON_TRY(details.attempts, context_.store->Attempts(job_id));
  return details;
}

Result<std::vector<store::Job>> Engine::List(const Caller& caller, store::JobFilter filter) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  if (!caller.Has(Right::kAdmin)) filter.tenant = caller.tenant;
  return context_.store->List(filter);
}

Result<Document> Engine::ResultDocument(const store::Job& job) {
  if (!store::IsEnd(job.state))
    return Error::Conflict("job " + job.id + " has no result yet; it is " + store::Name(job.state));
  Document document;
  if (!job.result.empty()) {
    document.text = job.result;
    document.bytes = static_cast<int64_t>(job.result.size());
    return document;
  }
  if (job.result_blob.empty())
    return Error::Conflict("job " + job.id + " ended without a result; see its dead letter: /v1/dlq/" + job.id);
  CAISSON_TRY(document.file, context_.blobs->Get(job.tenant, job.result_blob, &document.bytes, true));
  return document;
}

Result<Document> Engine::ResultOf(const Caller& caller, const std::string& job_id) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  return ResultDocument(job);
}

Result<json> Engine::EndOf(const std::string& job_id) {
  CAISSON_TRY(const std::vector<store::Event> events, context_.store->Events(job_id, 0, kMaxEventsOfAJob));
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->type == "result" || event->type == "dead_lettered") return json::parse(event->body);
  }
  return json::object();
}

Result<json> Engine::ResultWithoutOutput(const store::Job& job) {
  CAISSON_TRY(const Document document, ResultDocument(job));
  if (!document.file) return json::parse(document.text);
  CAISSON_TRY(const json end, EndOf(job.id));
  // Results of earlier versions have the output somewhere in them.
  const int64_t from = end.value("rest_at", int64_t{0});
  const ByteBudget::Share memory = context_.large_documents.Take(3 * (document.bytes - from));
  CAISSON_TRY(const std::string text, linux_sys::ReadAt(document.file.get(), from, document.bytes - from));
  return json::parse(from == 0 ? text : "{" + text);
}

Result<std::vector<store::Event>> Engine::Events(const Caller& caller, const std::string& job_id, int64_t after_seq,
                                                 int64_t limit) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  CAISSON_TRY_VOID(OwnJob(caller, job_id));
  CAISSON_TRY(std::vector<store::Event> events, context_.store->Events(job_id, after_seq, limit));
  // Their bodies are internal: they say where the parts of the result are stored.
  for (store::Event& event : events) {
    if (event.type == "result") event.body = "{}";
  }
  return events;
}

Result<Log> Engine::Logs(const Caller& caller, const std::string& job_id, int64_t from_offset, int64_t max_bytes) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  // Look here before the store: a job that ends in between is then found in the store.
  const std::shared_ptr<LiveJob> live = context_.live.Find(job_id);
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  const bool ended = store::IsEnd(job.state);
  if (live != nullptr) {
    Log log = live->ReadLog(from_offset, max_bytes);
    log.complete = ended && log.chunks.empty();
    return log;
  }
  if (ended) return KeptLog(job, from_offset, max_bytes);
  Log log;
  log.next_offset = from_offset;
  return log;
}

Result<Log> Engine::KeptLog(const store::Job& job, int64_t from_offset, int64_t max_bytes) {
  Log log;
  log.next_offset = from_offset;
  const auto add = [&](const char* stream, int64_t at, std::string bytes) {
    log.next_offset = at + static_cast<int64_t>(bytes.size());
    log.chunks.push_back({at, stream, std::move(bytes)});
  };
  CAISSON_TRY(const json end, EndOf(job.id));
  if (end.contains("log")) {
    int64_t size = 0;
    CAISSON_TRY(const UniqueFd file, context_.blobs->Get(job.tenant, end["log"], &size, false));
    const int64_t stdout_size = end.value("log_stdout", size);
    const bool in_stdout = from_offset < stdout_size;
    const int64_t until = std::min(in_stdout ? stdout_size : size, from_offset + max_bytes);
    if (from_offset < until) {
      CAISSON_TRY(std::string bytes, linux_sys::ReadAt(file.get(), from_offset, until - from_offset));
      add(in_stdout ? "stdout" : "stderr", from_offset, std::move(bytes));
    }
    log.complete = log.next_offset >= size;
    return log;
  }
  // A small result, or one of an earlier version, is complete in its own text.
  log.complete = true;
  const Result<Document> document = ResultDocument(job);
  if (!document) return log;
  const ByteBudget::Share memory = context_.large_documents.Take(4 * document->bytes);
  std::string text = document->text;
  if (document->file) {
    CAISSON_TRY(text, linux_sys::ReadAt(document->file.get(), 0, document->bytes));
  }
  const json result = json::parse(text);
  int64_t offset = 0;
  for (const char* stream : {"stdout", "stderr"}) {
    const std::string bytes = result.value(stream, "");
    const auto size = static_cast<int64_t>(bytes.size());
    if (offset + size > from_offset) {
      const int64_t skipped = std::max<int64_t>(from_offset - offset, 0);
      add(stream, offset + skipped, bytes.substr(static_cast<size_t>(skipped)));
    }
    offset += size;
  }
  return log;
}

Result<Artifact> Engine::OpenArtifact(const Caller& caller, const std::string& job_id, const std::string& path) {
  CAISSON_TRY_VOID(Require(caller, Right::kRead));
  CAISSON_TRY(const store::Job job, OwnJob(caller, job_id));
  CAISSON_TRY(const json result, ResultWithoutOutput(job));
  const std::string inside = path.rfind('/', 0) == 0 ? path : "/" + path;
  for (const json& one : result["artifacts"]) {
    if (one["path"] != inside) continue;
    Artifact artifact;
    artifact.path = inside;
    artifact.sha256 = one["sha256"];
    CAISSON_TRY(artifact.file, context_.blobs->Get(job.tenant, artifact.sha256, &artifact.bytes, true));
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
  CAISSON_TRY(const store::End end, CancelledEnd(context_, job, why));
  CAISSON_TRY(store::Job cancelled,
              context_.store->Cancel(
                  job_id, why, end,
                  context_.audit_writer->Note(job, {caller.subject, verify::Role::kSubmitter}, audit::Cancel{why})));
  CAISSON_TRY_VOID(context_.audit_writer->WriteNotes(*context_.store));
  // A worker on another service learns of it when it renews its lease.
  if (const std::shared_ptr<LiveJob> live = context_.live.Find(job_id)) live->RequestStop(Stop::kCancelled);
  context_.changes->Notify(job_id);
  return cancelled;
}

std::unique_ptr<Subscription> Engine::Watch(const std::string& job_id, std::function<void()> changed) {
  return context_.changes->Watch(job_id, std::move(changed));
}

Result<std::string> Engine::PutArchive(const Caller& caller, std::string_view bytes) {
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  // Always written, even if the blob exists: the duration reveals nothing.
  CAISSON_TRY(const std::unique_ptr<Blobs::Upload> upload, context_.blobs->Begin(caller.tenant, 0));
  CAISSON_TRY_VOID(upload->Add(bytes));
  return upload->Finish();
}

Result<std::string> Engine::PutArchive(const Caller& caller, int file, int64_t bytes) {
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  CAISSON_TRY(const std::unique_ptr<Blobs::Upload> upload, context_.blobs->Begin(caller.tenant, 0));
  for (int64_t at = 0; at < bytes;) {
    CAISSON_TRY(const std::string piece, linux_sys::ReadAt(file, at, std::min(bytes - at, kCopyBytes)));
    CAISSON_TRY_VOID(upload->Add(piece));
    at += static_cast<int64_t>(piece.size());
  }
  return upload->Finish();
}

Readiness Engine::Ready() {
  Readiness readiness;
  const auto check = [&](const char* name, bool good, const std::string& fault) {
    readiness.checks.emplace_back(name, good ? "ok" : fault);
    return good;
  };
  const Status store = context_.store->Ping();
  bool ready = check("store", bool(store), store ? "" : store.error().message);
  ready &= check("audit", context_.audit_writer->Usable(), "the audit log cannot be written; free space on its disk");
  ready &= check("launcher", context_.runtime_ready(), "no launcher answers; it is being started again");
  ready &= check("memory", workers_.MemoryFits(), "not enough free memory for another job");
  const Status room = context_.blobs->HasRoom();
  ready &= check("blobs", bool(room), room ? "" : room.error().message + "; raise blob_quota or free space");
  ready &= check("taking", taking_, "shutting down");
  readiness.ready = ready;
  return readiness;
}

void Engine::TellPools() {
  for (const auto& runtime : context_.runtimes) {
    const Result<runtime::PoolsReport> report = runtime->Pools();
    if (!report) continue;  // its restarts are counted elsewhere
    for (const runtime::PoolReport& pool : report->pools) {
      const std::string start = "start=\"" + pool.start + "\"";
      context_.metrics.Set("caisson_pool_members", start + ",state=\"ready\"", static_cast<double>(pool.ready));
      context_.metrics.Set("caisson_pool_members", start + ",state=\"preparing\"", static_cast<double>(pool.preparing));
      context_.metrics.Follow("caisson_pool_taken_total", start, static_cast<double>(pool.taken));
      context_.metrics.Follow("caisson_pool_missed_total", start, static_cast<double>(pool.missed));
      context_.metrics.Follow("caisson_pool_died_total", start, static_cast<double>(pool.died));
    }
    context_.metrics.Follow("caisson_interpreters_died_total", "", static_cast<double>(report->interpreters_died));
  }
}

std::string Engine::Metrics() {
  if (count_sessions_) count_sessions_();
  const Result<store::Counts> counts = context_.store->Count(UnixMillis());
  if (counts) {
    for (const char* state : store::kJobStateNames) {
      const auto found = counts->by_state.find(state);
      context_.metrics.Set("caisson_jobs", std::string("state=\"") + state + "\"",
                           found == counts->by_state.end() ? 0 : static_cast<double>(found->second));
    }
    for (const auto& [tenant, waiting] : counts->waiting_by_tenant)
      context_.metrics.Set("caisson_queue_waiting", "tenant=\"" + LabelValue(tenant) + "\"",
                           static_cast<double>(waiting));
    const int64_t oldest = counts->oldest_queued_ms;
    context_.metrics.Set("caisson_queue_oldest_seconds", "",
                         oldest == 0 ? 0 : static_cast<double>(UnixMillis() - oldest) / 1e3);
    context_.metrics.Set("caisson_approvals_pending", "", static_cast<double>(counts->approvals_pending));
  } else {
    context_.metrics.Add("caisson_store_errors_total");
  }
  TellPools();
  context_.metrics.Set("caisson_blob_bytes", "", static_cast<double>(context_.blobs->bytes()));
  return context_.metrics.Text();
}

}  // namespace caisson::service
