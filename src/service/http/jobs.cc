// Submitting jobs and querying them, one by one or in lists.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/syntax.h"
#include "service/http/bodies.h"
#include "service/http/documents.h"
#include "service/http/problem.h"
#include "service/http/routes.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request.h"

namespace caisson::service::http {

namespace {

using nlohmann::json;

constexpr int64_t kMaxWaitMs = 60'000;
constexpr size_t kMaxBatch = 1000;
constexpr int64_t kMaxPage = 1000;

verify::JsonBounds RequestBounds() {
  verify::JsonBounds bounds;
  bounds.max_bytes = verify::kMaxRequestBytes;
  return bounds;
}

// A body that is not JSON is malformed (400); JSON with a wrong member is 422. The service parses the body anyway, so
// it is parsed again only after a refusal, to tell the two apart.
Response SubmitProblem(const Error& error, std::string_view body) {
  if (error.kind == ErrorKind::kInvalid) {
    if (const auto read = verify::ReadJson(body, RequestBounds()); !read) return Problem(400, read.error().message);
  }
  return Problem(error);
}

Response Accepted(const store::Submitted& submitted) {
  Response response = Json(202, ToJson(submitted.job));
  response.fields.emplace_back("Location", "/v1/jobs/" + submitted.job.id);
  if (submitted.existed) response.fields.emplace_back("Idempotency-Replayed", "true");
  return response;
}

Reply Send(Response head, Document document) {
  if (!document.file) {
    head.body = std::move(document.text);
    return head;
  }
  auto body = std::make_unique<SegmentStream>();
  body->Add(std::move(document.file), document.bytes);
  return Streamed{std::move(head), document.bytes, std::move(body)};
}

Answer ToAnswer(Reply reply) {
  return std::visit([](auto&& one) -> Answer { return std::move(one); }, std::move(reply));
}

// Waits for the end of a job, and answers with its result.
class ResultWaiter : public Waiter {
 public:
  // `unfinished` is the answer while there is no result.
  ResultWaiter(const Call& call, std::string route, std::string job_id,
               std::function<Response(const store::Job&, const Error&)> unfinished)
      : service_(call.service),
        caller_(*call.caller),
        route_(std::move(route)),
        job_id_(std::move(job_id)),
        unfinished_(std::move(unfinished)),
        subscription_(call.service.Watch(job_id_, call.wake)) {}

  std::optional<Reply> Poll(bool last) override {
    const Result<JobDetails> found = service_.Find(caller_, job_id_);
    if (!found) return Problem(found.error());
    if (!store::IsEnd(found->job.state) && !last) return std::nullopt;
    Result<Document> result = service_.ResultOf(caller_, job_id_);
    if (!result) {
      return result.error().kind == ErrorKind::kConflict ? unfinished_(found->job, result.error())
                                                         : Problem(result.error());
    }
    Response head = JsonText(200, "");
    head.route = route_;
    head.fields.emplace_back("Location", "/v1/jobs/" + job_id_);
    return Send(std::move(head), *std::move(result));
  }

 private:
  Service& service_;
  const Caller caller_;
  const std::string route_, job_id_;
  const std::function<Response(const store::Job&, const Error&)> unfinished_;
  const std::unique_ptr<Subscription> subscription_;
};

// The key of the header, or an error that names the field.
Result<std::string> IdempotencyKey(const Request& request) {
  const auto field = request.Field("idempotency-key");
  if (!field) return std::string();
  if (const auto fault = policy::FaultInIdempotencyKey(*field)) return Error::Invalid("Idempotency-Key: " + *fault);
  return std::string(*field);
}

Response BadParameter(const Error& error) {
  return Problem(400, error.message, error.message.substr(0, error.message.find(':')));
}

Result<store::JobFilter> ReadFilter(const Query& query) {
  store::JobFilter filter;
  filter.tenant = query.Text("tenant").value_or("");
  filter.request_id = query.Text("request_id").value_or("");
  filter.before_id = query.Text("cursor").value_or("");
  CAISSON_TRY(filter.limit, query.Number("limit", 100, 1, kMaxPage));
  if (const auto label = query.Text("label")) {
    const size_t equals = label->find('=');
    if (equals == std::string::npos || equals == 0) return Error::Invalid("label: is not KEY=VALUE");
    filter.label_key = label->substr(0, equals);
    filter.label_value = label->substr(equals + 1);
  }
  for (const char* name : {"tenant", "request_id", "cursor"}) {
    const auto text = query.Text(name);
    if (text && !policy::IsWord(*text, "._-", 128)) return Error::Invalid(std::string(name) + ": is no such id");
  }
  if (const auto states = query.Text("state")) {
    for (size_t at = 0; at <= states->size();) {
      const std::string word = states->substr(at, states->find(',', at) - at);
      at += word.size() + 1;
      const auto* found = std::find(store::kJobStateNames.begin(), store::kJobStateNames.end(), word);
      if (found == store::kJobStateNames.end()) return Error::Invalid("state: there is no state " + Quoted(word));
      filter.states.push_back(static_cast<store::JobState>(found - store::kJobStateNames.begin()));
    }
  }
  return filter;
}

}  // namespace

Answer SubmitJob(const Call& call) {
  const Result<int64_t> wait_ms = call.query.Duration("wait", kMaxWaitMs);
  if (!wait_ms) return BadParameter(wait_ms.error());
  const Result<std::string> key = IdempotencyKey(call.request);
  if (!key) return Problem(400, key.error().message, "Idempotency-Key");
  std::string held;
  const Result<std::string_view> body = WholeBody(call.request, held);
  if (!body) return Problem(body.error());
  const Result<store::Submitted> submitted = call.service.Submit(*call.caller, *body, *key);
  if (!submitted) return SubmitProblem(submitted.error(), *body);
  held = std::string();
  if (*wait_ms == 0) return Accepted(*submitted);
  // A caller with the right to submit but not to read gets the same answer as without waiting.
  if (!call.caller->Has(Right::kRead)) return Accepted(*submitted);
  const auto unfinished = [existed = submitted->existed](const store::Job& job, const Error&) {
    return Accepted({job, existed});
  };
  return Awaited{*wait_ms, "/v1/jobs", std::make_unique<ResultWaiter>(call, "/v1/jobs", submitted->job.id, unfinished)};
}

Answer SubmitBatch(const Call& call) {
  if (call.request.Field("idempotency-key"))
    return Problem(400, "a batch has a key for each request, in its idempotency_key", "Idempotency-Key");
  std::string held;
  const Result<std::string_view> text = WholeBody(call.request, held);
  if (!text) return Problem(text.error());
  const Result<json> requests = verify::ReadJson(*text, RequestBounds());
  held = std::string();
  if (!requests) return Problem(400, requests.error().message);
  if (const Status fits = verify::ExpectArray(*requests, "", 1, kMaxBatch); !fits) return Problem(fits.error());
  json answers = json::array();
  for (const json& request : *requests) {
    const Result<store::Submitted> submitted = call.service.Submit(*call.caller, request.dump(), "");
    if (submitted)
      answers.push_back({{"status", 202}, {"job", ToJson(submitted->job)}});
    else
      answers.push_back({{"status", StatusOf(submitted.error())}, {"problem", ProblemDocument(submitted.error())}});
  }
  return Json(200, {{"answers", std::move(answers)}});
}

Answer ListJobs(const Call& call) {
  Result<store::JobFilter> filter = ReadFilter(call.query);
  if (!filter) return BadParameter(filter.error());
  const auto limit = static_cast<size_t>(filter->limit++);  // one more, to know whether there is more
  const Result<std::vector<store::Job>> jobs = call.service.List(*call.caller, *std::move(filter));
  if (!jobs) return Problem(jobs.error());
  return Json(200, PageOf(*jobs, limit));
}

Answer ListDeadLetters(const Call& call) {
  Result<store::JobFilter> filter = ReadFilter(call.query);
  if (!filter) return BadParameter(filter.error());
  const auto limit = static_cast<size_t>(filter->limit++);
  const Result<std::vector<store::Job>> jobs = call.service.DeadLetters(*call.caller, *std::move(filter));
  if (!jobs) return Problem(jobs.error());
  return Json(200, PageOf(*jobs, limit));
}

Answer ShowJob(const Call& call) {
  const Result<JobDetails> details = call.service.Find(*call.caller, call.path[0]);
  if (!details) return Problem(details.error());
  return Json(200, ToJson(*details));
}

Answer ShowResult(const Call& call) {
  const Result<int64_t> wait_ms = call.query.Duration("wait", kMaxWaitMs);
  if (!wait_ms) return BadParameter(wait_ms.error());
  if (*wait_ms > 0) {
    const auto unfinished = [](const store::Job&, const Error& error) { return Problem(error); };
    constexpr char kRoute[] = "/v1/jobs/{id}/result";
    return Awaited{*wait_ms, kRoute, std::make_unique<ResultWaiter>(call, kRoute, call.path[0], unfinished)};
  }
  Result<Document> result = call.service.ResultOf(*call.caller, call.path[0]);
  if (!result) return Problem(result.error());
  return ToAnswer(Send(JsonText(200, ""), *std::move(result)));
}

Answer ShowAttestation(const Call& call) {
  Result<std::string> envelope = call.service.AttestationOf(*call.caller, call.path[0]);
  if (!envelope) return Problem(envelope.error());
  return Plain(200, "application/vnd.dsse.envelope.v1+json", *std::move(envelope));
}

Answer CancelJob(const Call& call) {
  std::string reason;
  if (!call.request.body.empty()) {
    const Result<json> body = verify::ReadJson(call.request.body, {});
    if (!body) return Problem(400, body.error().message);
    const auto read = [&]() -> Status {
      CAISSON_TRY_VOID(verify::ExpectObject(*body, "", {"reason"}));
      return verify::ReadOptional(*body, "", "reason", reason, verify::ReadSentence, size_t{512});
    };
    if (const Status fits = read(); !fits) return Problem(fits.error());
  }
  const Result<store::Job> job = call.service.Cancel(*call.caller, call.path[0], reason);
  if (!job) return Problem(job.error());
  return Json(202, ToJson(*job));
}

Answer PutArchive(const Call& call) {
  const Request& request = call.request;
  const Result<std::string> sha256 =
      request.body_file >= 0 ? call.service.PutArchive(*call.caller, request.body_file, request.content_length)
                             : call.service.PutArchive(*call.caller, request.body);
  if (!sha256) return Problem(sha256.error());
  return Json(201, {{"sha256", *sha256}, {"archive", "sha256:" + *sha256}, {"bytes", request.content_length}});
}

}  // namespace caisson::service::http
