#include "client/event_stream.h"

#include <unistd.h>

#include "base/percent.h"
#include "base/units.h"
#include "verify/json_reader.h"

namespace caisson::client {

namespace {

constexpr size_t kMaxEventBytes = size_t{128} << 20;  // the last one holds the result
constexpr int64_t kSilenceMs = 60'000;                // a stream says something every quarter of that
constexpr int kPauseMicros = 500'000;

Error TooLarge() { return Error{ErrorKind::kSystem, 0, "an event is larger than " + FormatSize(kMaxEventBytes)}; }

}  // namespace

Status EventParser::Take(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_.append(bytes.substr(0, end));
    if (line_.size() > kMaxEventBytes) return TooLarge();
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    CAISSON_TRY_VOID(TakeLine(line_, on_event));
    line_.clear();
  }
  return {};
}

Status EventParser::TakeLine(std::string_view line, const OnEvent& on_event) {
  if (line.empty()) {
    if (data_.empty()) return {};
    const std::string data = std::exchange(data_, {});
    return on_event(seq_, data);
  }
  if (line.substr(0, 4) == "id: ") {
    if (const Result<int64_t> seq = ParseCount(line.substr(4)); seq) seq_ = *seq;
  } else if (line.substr(0, 6) == "data: ") {
    data_.append(line.substr(6));
    if (data_.size() > kMaxEventBytes) return TooLarge();
  }
  return {};
}

bool EndsJob(const std::string& type) { return type == "result" || type == "dead_lettered"; }

Status Follow(const Client& client, const std::string& job_id, int64_t after_seq,
              const std::function<void(const nlohmann::json&)>& on_event, int patience) {
  bool ended = false;
  int failures = 0;
  while (!ended) {
    Ask ask;
    ask.target = "/v1/jobs/" + PercentEncode(job_id) + "/events";
    ask.timeout_ms = kSilenceMs;
    ask.fields = {{"Accept", "text/event-stream"}, {"Last-Event-ID", std::to_string(after_seq)}};
    EventParser parser;
    Status done = client.Stream(ask, [&](std::string_view bytes) {
      return parser.Take(bytes, [&](int64_t seq, const std::string& data) -> Status {
        verify::JsonBounds bounds;
        bounds.max_bytes = kMaxEventBytes;
        bounds.max_depth = 64;
        CAISSON_TRY(const nlohmann::json event, verify::ReadJson(data, bounds));
        after_seq = seq;
        failures = 0;
        ended = EndsJob(event.value("type", ""));
        on_event(event);
        return {};
      });
    });
    // A complete stream without events: the job ended before `after_seq`.
    if (done) return {};
    if (ended) return {};
    const bool lost = done.error().kind == ErrorKind::kSystem || done.error().kind == ErrorKind::kExhausted;
    if (!lost || ++failures > patience) return done;
    ::usleep(kPauseMicros);
  }
  return {};
}

}  // namespace caisson::client
