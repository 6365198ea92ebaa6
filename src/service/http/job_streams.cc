// What a job says while it runs and leaves when it ended: events, output, artifacts. All three are sent as they come.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/percent.h"
#include "base/units.h"
#include "policy/syntax.h"
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

// Whatever a library throws ends the stream, visibly, and not the service.
template <typename Make>
Piece Guarded(Make make) {
  try {
    return make();
  } catch (const std::exception&) {
    return {"", Piece::Then::kEnd, true};
  }
}

// Server-sent events: each lifecycle event with its number as `id`, so that a reader who was cut off goes on where he
// was with Last-Event-ID. Ends behind the event that ended the job.
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
    // Looked at first: what is ended now gets no event later. Rarely, because it means reading the whole job.
    const bool idle = MonotonicNanos() - said_ns_ >= heartbeat_ns_;
    bool ended = false;
    if (first_ || idle) {
      const Result<JobDetails> found = service_.Find(caller_, job_id_);
      if (!found) return {"", Piece::Then::kEnd, true};
      ended = store::IsEnd(found->job.state);
    }
    const Result<std::vector<store::Event>> events = service_.Events(caller_, job_id_, seq_, kEventsAtOnce);
    if (!events) return {"", Piece::Then::kEnd, true};
    std::string text = std::exchange(first_, false) ? "retry: 1000\n\n" : "";
    for (const store::Event& event : *events) {
      text += "id: " + std::to_string(event.seq) + "\nevent: " + event.type +
              "\ndata: " + ToText(ToJson(event, job_id_, request_id_)) + "\n\n";
      seq_ = event.seq;
      ended = event.type == "result" || event.type == "dead_lettered" || (ended && event.type != "queued");
    }
    if (text.empty() && idle) text = ": still here\n\n";
    if (!text.empty()) said_ns_ = MonotonicNanos();
    if (static_cast<int64_t>(events->size()) == kEventsAtOnce) return {std::move(text), Piece::Then::kMore};
    return {std::move(text), ended ? Piece::Then::kEnd : Piece::Then::kWait};
  }

  Service& service_;
  const Caller caller_;
  const std::string job_id_, request_id_;
  const int64_t heartbeat_ns_;
  int64_t seq_;
  int64_t said_ns_;
  bool first_ = true;
  const std::unique_ptr<Subscription> subscription_;
};

// The output as it comes; of one stream, or of both in the order of arrival.
class LogStream : public BodyStream {
 public:
  LogStream(const Call& call, std::string job_id, std::string stream, int64_t offset)
      : service_(call.service),
        caller_(*call.caller),
        job_id_(std::move(job_id)),
        stream_(std::move(stream)),
        offset_(offset),
        subscription_(call.service.Watch(job_id_, call.wake)) {}

  Piece Next() override {
    return Guarded([this]() -> Piece {
      const Result<Log> log = service_.Logs(caller_, job_id_, offset_);
      if (!log) return {"", Piece::Then::kEnd, true};
      std::string text;
      for (const LogChunk& chunk : log->chunks)
        if (stream_.empty() || chunk.stream == stream_) text += chunk.bytes;
      offset_ = log->next_offset;
      return {std::move(text), log->complete ? Piece::Then::kEnd : Piece::Then::kWait};
    });
  }

 private:
  Service& service_;
  const Caller caller_;
  const std::string job_id_, stream_;
  int64_t offset_;
  const std::unique_ptr<Subscription> subscription_;
};

class FileStream : public BodyStream {
 public:
  FileStream(UniqueFd file, int64_t bytes) : file_(std::move(file)), left_(bytes) {}

  Piece Next() override {
    Piece piece;
    piece.bytes.resize(static_cast<size_t>(std::min<int64_t>(left_, 256 << 10)));
    const ssize_t count = ::pread(file_.get(), piece.bytes.data(), piece.bytes.size(), offset_);
    if (count < 0 && errno == EINTR) return {"", Piece::Then::kMore};
    if (count <= 0 && left_ > 0) return {"", Piece::Then::kEnd, true};
    piece.bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    offset_ += count;
    left_ -= count;
    if (left_ == 0) piece.then = Piece::Then::kEnd;
    return piece;
  }

 private:
  UniqueFd file_;
  int64_t left_;
  off_t offset_ = 0;
};

bool WantsEventStream(const Request& request) {
  const auto accept = request.Field("accept");
  return accept && accept->find("text/event-stream") != std::string_view::npos;
}

// Output of strangers is never a document of ours: no type is guessed, nothing in it runs.
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
    json list = json::array();
    for (const store::Event& event : *events) list.push_back(ToJson(event, job_id, found->job.request_id));
    return Json(200, {{"events", std::move(list)}, {"next_after", events->empty() ? *after : events->back().seq}});
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
  const Result<Log> log = call.service.Logs(*call.caller, call.path[0], *from);
  if (!log) return Problem(log.error());
  // Bytes as the program wrote them, which need not be UTF-8.
  Response response = Plain(200, "text/plain; charset=utf-8", "");
  Sandbox(response);
  if (*follow) {
    return Streamed{std::move(response), std::nullopt, std::make_unique<LogStream>(call, call.path[0], stream, *from)};
  }
  for (const LogChunk& chunk : log->chunks)
    if (stream.empty() || chunk.stream == stream) response.body += chunk.bytes;
  return response;
}

Answer SendArtifact(const Call& call) {
  Result<Artifact> artifact = call.service.OpenArtifact(*call.caller, call.path[0], call.path[1]);
  // Whether there is nothing yet or nothing ever: it is not there.
  if (!artifact && artifact.error().kind == ErrorKind::kConflict) return Problem(404, artifact.error().message);
  if (!artifact) return Problem(artifact.error());
  Response head = Plain(200, "application/octet-stream", "");
  Sandbox(head);
  head.fields.emplace_back("Content-Disposition", AttachmentName(artifact->path));
  head.fields.emplace_back("ETag", "\"" + artifact->sha256 + "\"");
  const int64_t bytes = artifact->bytes;
  return Streamed{std::move(head), bytes, std::make_unique<FileStream>(std::move(artifact->file), bytes)};
}

}  // namespace caisson::service::http
