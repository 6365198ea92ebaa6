// Commands of sessions: starting them, waiting for their end, following their output, feeding and signalling them.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "base/utf8.h"
#include "service/http/session_calls.h"
#include "verify/digest.h"

namespace caisson::service::http {

namespace {

using nlohmann::json;
using Piece = BodyStream::Piece;

constexpr int64_t kMaxWaitMs = 300'000;
constexpr int64_t kMaxNumber = 0xffffffff;

// "30s" as elsewhere, or a bare number of seconds.
Result<int64_t> ReadWait(const Query& query) {
  const auto text = query.Text("wait");
  if (!text) return 0;
  const bool bare = !text->empty() && text->find_first_not_of("0123456789.") == std::string::npos;
  const Result<int64_t> wait = ParseDuration(bare ? *text + "s" : *text);
  if (!wait || *wait < 0 || *wait > kMaxWaitMs)
    return Error::Invalid("wait: is not a time of at most " + FormatDuration(kMaxWaitMs) + ", like 30s");
  return *wait;
}

Result<int64_t> ReadNumber(const std::string& text) {
  const Result<int64_t> number = ParseCount(text);
  if (!number || *number < 1 || *number > kMaxNumber) return Error::NotFound("there is no command " + text);
  return *number;
}

std::string PlaceOf(const std::string& id, int64_t number) {
  return "/v1/sessions/" + id + "/exec/" + std::to_string(number);
}

// Waits for the end of a command, and answers with what came of it.
class EndWaiter : public Waiter {
 public:
  EndWaiter(const Call& call, SessionService& sessions, const char* route, int64_t number, int unfinished)
      : sessions_(sessions),
        caller_(*call.caller),
        route_(route),
        id_(call.path[0]),
        number_(number),
        unfinished_(unfinished),
        subscription_(sessions.Watch(id_, call.wake)) {}

  std::optional<Reply> Poll(bool last) override {
    const Result<json> command = sessions_.Command(caller_, id_, number_, true);
    if (!command) return Named(Problem(command.error()));
    const bool running = command->value("state", "") == "running";
    if (running && !last) return std::nullopt;
    Response response = Json(running ? unfinished_ : 200, *command);
    response.fields.emplace_back("Location", PlaceOf(id_, number_));
    return Named(std::move(response));
  }

 private:
  Response Named(Response response) const {
    response.route = route_;
    return response;
  }

  SessionService& sessions_;
  const Caller caller_;
  const std::string route_, id_;
  const int64_t number_;
  const int unfinished_;
  const std::unique_ptr<Subscription> subscription_;
};

// Server-sent events with a command's output: `stdout` and `stderr` with {offset, text | base64}, and at last `end`
// with the command. The id of an event is how much of both streams the client has then, so that one that was cut off
// goes on there.
class OutputStream : public BodyStream {
 public:
  OutputStream(const Call& call, SessionService& sessions, int64_t number, int64_t out, int64_t err)
      : sessions_(sessions),
        caller_(*call.caller),
        id_(call.path[0]),
        number_(number),
        heartbeat_ns_(call.bounds.heartbeat_ms * 1'000'000),
        said_ns_(MonotonicNanos()),
        offsets_{out, err},
        subscription_(sessions.Watch(id_, call.wake)) {}

  Piece Next() override {
    try {
      return Make();
    } catch (const std::exception&) {
      return {"", Piece::Then::kEnd, true};
    }
  }

 private:
  Piece Make() {
    Piece piece;
    if (std::exchange(first_, false)) piece.bytes = "retry: 1000\n\n";
    bool ended = true, more = false;
    for (const bool error : {false, true}) {
      const Result<SessionOutput> output =
          sessions_.Output(caller_, id_, number_, error, offsets_[error ? 1 : 0], kPieceBytes / 2);
      if (!output) return {"", Piece::Then::kEnd, true};
      more = AddOutput(piece.bytes, *output, error) || more;
      ended = ended && output->ended;
    }
    if (more) {
      piece.then = Piece::Then::kMore;
    } else if (ended) {
      const Result<json> command = sessions_.Command(caller_, id_, number_, false);
      if (!command) return {"", Piece::Then::kEnd, true};
      AddEvent(piece.bytes, "end", *command);
      piece.then = Piece::Then::kEnd;
    } else {
      piece.then = Piece::Then::kWait;
    }
    const int64_t now = MonotonicNanos();
    if (piece.bytes.empty() && now - said_ns_ >= heartbeat_ns_) piece.bytes = ": still here\n\n";
    if (!piece.bytes.empty()) said_ns_ = now;
    return piece;
  }

  // Returns whether there is more to read at once.
  bool AddOutput(std::string& text, const SessionOutput& output, bool error) {
    int64_t& offset = offsets_[error ? 1 : 0];
    std::string_view bytes = output.bytes;
    // A character that is not complete yet comes with the next piece.
    if (!output.ended && !IsValidUtf8(bytes)) {
      for (size_t cut = 1; cut <= 3 && cut < bytes.size(); ++cut) {
        if (!IsValidUtf8(bytes.substr(0, bytes.size() - cut))) continue;
        bytes.remove_suffix(cut);
        break;
      }
    }
    if (bytes.empty() && output.offset == offset) return output.more;
    json data = {{"offset", output.offset}};
    if (output.offset > offset) data["missing"] = output.offset - offset;
    if (IsValidUtf8(bytes))
      data["text"] = bytes;
    else
      data["base64"] = verify::EncodeBase64(bytes);
    offset = output.offset + static_cast<int64_t>(bytes.size());
    AddEvent(text, error ? "stderr" : "stdout", data);
    return output.more;
  }

  void AddEvent(std::string& text, const char* type, const json& data) const {
    text += "id: " + std::to_string(offsets_[0]) + "-" + std::to_string(offsets_[1]) + "\nevent: " + type +
            "\ndata: " + ToText(data) + "\n\n";
  }

  SessionService& sessions_;
  const Caller caller_;
  const std::string id_;
  const int64_t number_, heartbeat_ns_;
  int64_t said_ns_;
  int64_t offsets_[2];
  bool first_ = true;
  const std::unique_ptr<Subscription> subscription_;
};

}  // namespace

Answer StartExec(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<int64_t> wait_ms = ReadWait(call.query);
    if (!wait_ms) return BadParameter(wait_ms.error());
    json body;
    if (auto fault = ReadBody(call, body)) return *std::move(fault);
    const Result<int64_t> number = sessions.Exec(*call.caller, call.path[0], body);
    if (!number) return Problem(number.error());
    constexpr char kRoute[] = "/v1/sessions/{id}/exec";
    // A caller with the right to submit but not to read gets the number alone.
    if (!call.caller->Has(Right::kRead)) {
      Response response = Json(202, {{"exec", *number}, {"session", call.path[0]}, {"state", "running"}});
      response.fields.emplace_back("Location", PlaceOf(call.path[0], *number));
      return response;
    }
    auto waiter = std::make_unique<EndWaiter>(call, sessions, kRoute, *number, 202);
    if (*wait_ms == 0) {
      Reply reply = *waiter->Poll(true);
      return std::visit([](auto&& one) -> Answer { return std::move(one); }, std::move(reply));
    }
    return Awaited{*wait_ms, kRoute, std::move(waiter)};
  });
}

Answer ShowExec(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<int64_t> wait_ms = ReadWait(call.query);
    if (!wait_ms) return BadParameter(wait_ms.error());
    const Result<int64_t> number = ReadNumber(call.path[1]);
    if (!number) return Problem(number.error());
    constexpr char kRoute[] = "/v1/sessions/{id}/exec/{n}";
    auto waiter = std::make_unique<EndWaiter>(call, sessions, kRoute, *number, 200);
    if (*wait_ms > 0) return Awaited{*wait_ms, kRoute, std::move(waiter)};
    Reply reply = *waiter->Poll(true);
    return std::visit([](auto&& one) -> Answer { return std::move(one); }, std::move(reply));
  });
}

Answer StreamExec(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<int64_t> number = ReadNumber(call.path[1]);
    if (!number) return Problem(number.error());
    int64_t out = 0, err = 0;
    if (const auto last = call.request.Field("last-event-id")) {
      const size_t dash = last->find('-');
      const Result<int64_t> first = ParseCount(last->substr(0, dash));
      const Result<int64_t> second =
          dash == std::string_view::npos ? Result<int64_t>(Error::Invalid("")) : ParseCount(last->substr(dash + 1));
      if (!first || !second) return Problem(400, "Last-Event-ID is not an event's id", "Last-Event-ID");
      out = *first;
      err = *second;
    }
    // Checked once before the first byte, because an error must be reported in the head.
    const Result<json> command = sessions.Command(*call.caller, call.path[0], *number, false);
    if (!command) return Problem(command.error());
    Response head = Plain(200, "text/event-stream", "");
    return Streamed{std::move(head), std::nullopt, std::make_unique<OutputStream>(call, sessions, *number, out, err)};
  });
}

Answer WriteExecInput(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<bool> end = call.query.Flag("eof");
    if (!end) return BadParameter(end.error());
    const Result<int64_t> number = ReadNumber(call.path[1]);
    if (!number) return Problem(number.error());
    std::string held;
    const Result<std::string_view> body = WholeBody(call.request, held);
    if (!body) return Problem(body.error());
    const Status written = sessions.WriteInput(*call.caller, call.path[0], *number, std::string(*body), *end);
    if (!written) return Problem(written.error());
    return Json(202, {{"bytes", body->size()}, {"eof", *end}});
  });
}

Answer SignalExec(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<int64_t> number = ReadNumber(call.path[1]);
    if (!number) return Problem(number.error());
    json body;
    if (auto fault = ReadBody(call, body)) return *std::move(fault);
    if (const Status told = sessions.Signal(*call.caller, call.path[0], *number, body); !told)
      return Problem(told.error());
    Caller reader = *call.caller;
    reader.rights.insert(Right::kRead);
    return JsonOr(sessions.Command(reader, call.path[0], *number, false));
  });
}

}  // namespace caisson::service::http
