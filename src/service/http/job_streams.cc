// Events, output and artifacts of a job. Events and output are sent as they appear.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/percent.h"
#include "base/units.h"
#include "policy/syntax.h"
#include "service/http/bodies.h"
#include "service/http/documents.h"
#include "service/http/problem.h"
#include "service/http/routes.h"

namespace caisson::service::http {

namespace {

using nlohmann::json;
using Piece = BodyStream::Piece;

constexpr int64_t kMaxEvents = 1000;
constexpr int64_t kEventsAtOnce = 100;

Response BadParameter(const Error& error) {
  return Problem(400, error.message, error.message.substr(0, error.message.find(':')));
}

// An exception of a library visibly ends the stream, not the service.
template <typename Make>
Piece Guarded(Make make) {
  try {
    return make();
  } catch (const std::exception&) {
    return {"", Piece::Then::kEnd, true};
  }
}

// Adds an event to a body. The one that ends a job comes with the result, which may be a file.
void AddEvent(SegmentStream& body, Service& service, const Caller& caller, const store::Event& event,
              const std::string& job_id, const std::string& request_id) {
  std::string text = ToText(ToJson(event, job_id, request_id));
  if (event.type != "result") return body.Add(std::move(text));
  Result<Document> result = service.ResultOf(caller, job_id);
  if (!result) return body.Add(std::move(text));
  text.back() = ',';
  body.Add(text + "\"result\":");
  if (result->file)
    body.Add(std::move(result->file), result->bytes);
  else
    body.Add(std::move(result->text));
  body.Add("}");
}

// Server-sent events: each lifecycle event with its number as `id`, so that a client that was cut off continues with
// Last-Event-ID. The stream ends after the event that ended the job.
class EventStream : public BodyStream {
 public:
  EventStream(const Call& call, const store::Job& job, int64_t after_seq)
      : service_(call.service),
        caller_(*call.caller),
        job_id_(job.id),
        request_id_(job.request_id),
        heartbeat_ns_(call.bounds.heartbeat_ms * 1'000'000),
        seq_(after_seq),
        said_ns_(MonotonicNanos()),
        subscription_(call.service.Watch(job.id, call.wake)) {}

  Piece Next() override {
    return Guarded([this] { return Make(); });
  }

 private:
  Piece Make() {
    if (said_.bytes() > 0 && !all_said_) return Say();
    // Checked first: a job that has ended gets no later event. Rarely, because it reads the whole job.
    const bool idle = MonotonicNanos() - said_ns_ >= heartbeat_ns_;
    bool ended = false;
    if (first_ || idle) {
      const Result<JobDetails> found = service_.Find(caller_, job_id_);
      if (!found) return {"", Piece::Then::kEnd, true};
      ended = store::IsEnd(found->job.state);
    }
    const Result<std::vector<store::Event>> events = service_.Events(caller_, job_id_, seq_, kEventsAtOnce);
    if (!events) return {"", Piece::Then::kEnd, true};
    said_ = SegmentStream();
    if (std::exchange(first_, false)) said_.Add("retry: 1000\n\n");
    for (const store::Event& event : *events) {
      said_.Add("id: " + std::to_string(event.seq) + "\nevent: " + event.type + "\ndata: ");
      AddEvent(said_, service_, caller_, event, job_id_, request_id_);
      said_.Add("\n\n");
      seq_ = event.seq;
      ended = event.type == "result" || event.type == "dead_lettered" || (ended && event.type != "queued");
    }
    if (said_.bytes() == 0 && idle) said_.Add(": still here\n\n");
    if (said_.bytes() > 0) said_ns_ = MonotonicNanos();
    const bool more = static_cast<int64_t>(events->size()) == kEventsAtOnce;
    then_ = more ? Piece::Then::kMore : ended ? Piece::Then::kEnd : Piece::Then::kWait;
    all_said_ = said_.bytes() == 0;
    if (all_said_) return {"", then_};
    return Say();
  }

  Piece Say() {
    Piece piece = said_.Next();
    if (piece.broken || piece.then != Piece::Then::kEnd) return piece;
    all_said_ = true;
    piece.then = then_;
    return piece;
  }

  Service& service_;
  const Caller caller_;
  const std::string job_id_, request_id_;
  const int64_t heartbeat_ns_;
  int64_t seq_;
  int64_t said_ns_;
  bool first_ = true;
  SegmentStream said_;  // being sent, and …
  bool all_said_ = true;
  Piece::Then then_ = Piece::Then::kWait;  // … what follows it
  const std::unique_ptr<Subscription> subscription_;
};

// The output as it arrives; of one stream, or of both in the order of arrival.
class LogStream : public BodyStream {
 public:
  // `follow`: until the job ends; otherwise only the output up to now.
  LogStream(const Call& call, std::string job_id, std::string stream, int64_t offset, bool follow)
      : service_(call.service),
        caller_(*call.caller),
        job_id_(std::move(job_id)),
        stream_(std::move(stream)),
        offset_(offset),
        follow_(follow),
        subscription_(follow ? call.service.Watch(job_id_, call.wake) : nullptr) {}

  Piece Next() override {
    return Guarded([this]() -> Piece {
      const Result<Log> log = service_.Logs(caller_, job_id_, offset_, kPieceBytes);
      if (!log) return {"", Piece::Then::kEnd, true};
      std::string text;
      for (const LogChunk& chunk : log->chunks)
        if (stream_.empty() || chunk.stream == stream_) text += chunk.bytes;
      offset_ = log->next_offset;
      if (log->complete) return {std::move(text), Piece::Then::kEnd};
      if (!log->chunks.empty()) return {std::move(text), Piece::Then::kMore};
      return {std::move(text), follow_ ? Piece::Then::kWait : Piece::Then::kEnd};
    });
  }

 private:
  Service& service_;
  const Caller caller_;
  const std::string job_id_, stream_;
  int64_t offset_;
  const bool follow_;
  const std::unique_ptr<Subscription> subscription_;
};

bool WantsEventStream(const Request& request) {
  const auto accept = request.Field("accept");
  return accept && accept->find("text/event-stream") != std::string_view::npos;
}

// SECURITY: output is untrusted. Browsers must not guess a type or run anything in it.
void Sandbox(Response& response) {
  response.fields.emplace_back("Content-Security-Policy", "sandbox; default-src 'none'");
}

std::string AttachmentName(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  std::string plain = name;
  for (char& c : plain)
    if (!policy::IsWord(std::string_view(&c, 1), "._-", 1)) c = '_';
  return "attachment; filename=\"" + plain + "\"; filename*=UTF-8''" + PercentEncode(name);
}

}  // namespace

Answer ShowEvents(const Call& call) {
  Result<int64_t> after = call.query.Number("after", 0, 0, INT64_MAX);
  const Result<int64_t> limit = call.query.Number("limit", 100, 1, kMaxEvents);
  if (!after || !limit) return BadParameter(!after ? after.error() : limit.error());
  if (const auto last = call.request.Field("last-event-id")) {
    after = ParseCount(*last);
    if (!after) return Problem(400, "Last-Event-ID is not an event's number", "Last-Event-ID");
  }
  const std::string& job_id = call.path[0];
  const Result<JobDetails> found = call.service.Find(*call.caller, job_id);
  if (!found) return Problem(found.error());
  if (!WantsEventStream(call.request)) {
    const Result<std::vector<store::Event>> events = call.service.Events(*call.caller, job_id, *after, *limit);
    if (!events) return Problem(events.error());
    auto body = std::make_unique<SegmentStream>();
    body->Add("{\"events\":[");
    for (const store::Event& event : *events) {
      if (&event != &events->front()) body->Add(",");
      AddEvent(*body, call.service, *call.caller, event, job_id, found->job.request_id);
    }
    body->Add("],\"next_after\":" + std::to_string(events->empty() ? *after : events->back().seq) + "}");
    const int64_t bytes = body->bytes();
    return Streamed{JsonText(200, ""), bytes, std::move(body)};
  }
  Response head = Plain(200, "text/event-stream", "");
  return Streamed{std::move(head), std::nullopt, std::make_unique<EventStream>(call, found->job, *after)};
}

Answer ShowLogs(const Call& call) {
  const Result<int64_t> from = call.query.Number("from", 0, 0, INT64_MAX);
  const Result<bool> follow = call.query.Flag("follow");
  if (!from || !follow) return BadParameter(!from ? from.error() : follow.error());
  const std::string stream = call.query.Text("stream").value_or("");
  if (call.query.Text("stream") && stream != "stdout" && stream != "stderr")
    return Problem(400, "stream: is neither stdout nor stderr", "stream");
  // Checked once before the first byte, because an error must be reported in the head.
  const Result<Log> log = call.service.Logs(*call.caller, call.path[0], *from, 1);
  if (!log) return Problem(log.error());
  // Bytes as the program wrote them, which need not be UTF-8.
  Response head = Plain(200, "text/plain; charset=utf-8", "");
  Sandbox(head);
  return Streamed{std::move(head), std::nullopt,
                  std::make_unique<LogStream>(call, call.path[0], stream, *from, *follow)};
}

Answer SendArtifact(const Call& call) {
  Result<Artifact> artifact = call.service.OpenArtifact(*call.caller, call.path[0], call.path[1]);
  // The same answer for "not yet" and "never": not found.
  if (!artifact && artifact.error().kind == ErrorKind::kConflict) return Problem(404, artifact.error().message);
  if (!artifact) return Problem(artifact.error());
  Response head = Plain(200, "application/octet-stream", "");
  Sandbox(head);
  head.fields.emplace_back("Content-Disposition", AttachmentName(artifact->path));
  head.fields.emplace_back("ETag", "\"" + artifact->sha256 + "\"");
  const int64_t bytes = artifact->bytes;
  auto body = std::make_unique<SegmentStream>();
  body->Add(std::move(artifact->file), bytes);
  return Streamed{std::move(head), bytes, std::move(body)};
}

}  // namespace caisson::service::http
