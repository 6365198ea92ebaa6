// Files of sessions: bytes out and in, and directories as lists; and the events, which are a file of the session's own.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/percent.h"
#include "base/units.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "service/http/session_calls.h"

namespace caisson::service::http {

namespace {

using nlohmann::json;
using Piece = BodyStream::Piece;

struct Range {
  int64_t begin = 0, bytes = 0;
};

// One range of bytes as RFC 9110 has it. Nothing: the field is to be ignored. An error: it cannot be satisfied.
Result<std::optional<Range>> ReadRange(std::string_view field, int64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  const std::optional<Range> none;
  if (field.substr(0, kUnit.size()) != kUnit || field.find(',') != std::string_view::npos) return none;
  field.remove_prefix(kUnit.size());
  const size_t dash = field.find('-');
  if (dash == std::string_view::npos) return none;
  const auto number = [](std::string_view text) -> std::optional<int64_t> {
    if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos)
      return std::nullopt;
    return std::stoll(std::string(text));
  };
  const std::string_view first = field.substr(0, dash), last = field.substr(dash + 1);
  if (first.empty()) {
    const auto suffix = number(last);
    if (!suffix) return none;
    const int64_t bytes = std::min(*suffix, size);
    if (bytes == 0) return Error::Invalid("Range: is empty");
    return std::optional(Range{size - bytes, bytes});
  }
  const auto begin = number(first), end = number(last);
  if (!begin || (!last.empty() && !end) || (end && *end < *begin)) return none;
  if (*begin >= size) return Error::Invalid("Range: begins behind the end");
  return std::optional(Range{*begin, std::min(end.value_or(size - 1), size - 1) - *begin + 1});
}

// An octal number; -1 where none is given.
Result<int64_t> ReadMode(const Query& query) {
  const auto text = query.Text("mode");
  if (!text) return -1;
  const bool octal = !text->empty() && text->size() <= 5 && text->find_first_not_of("01234567") == std::string::npos;
  const int64_t mode = octal ? std::stoll(*text, nullptr, 8) : -1;
  if (mode < 0 || mode > 0777) return Error::Invalid("mode: is not an octal number up to 0777");
  return mode;
}

std::string Octal(int64_t mode) {
  std::string text;
  for (int shift = 9; shift >= 0; shift -= 3) text += static_cast<char>('0' + ((mode >> shift) & 7));
  return text;
}

// Events as server-sent events, from a file that grows.
class LineStream : public BodyStream {
 public:
  LineStream(const Call& call, SessionService& sessions, int64_t after)
      : sessions_(sessions),
        caller_(*call.caller),
        id_(call.path[0]),
        heartbeat_ns_(call.bounds.heartbeat_ms * 1'000'000),
        said_ns_(MonotonicNanos()),
        after_(after),
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
    const Result<Document> document = sessions_.Recorded(caller_, id_, "events.jsonl");
    if (!document) return {"", Piece::Then::kEnd, true};
    const int64_t size = std::min(document->bytes - offset_, kReadBytes);
    Piece piece;
    piece.then = Piece::Then::kWait;
    if (size > 0) {
      const Result<std::string> read = linux_sys::ReadAt(document->file.get(), offset_, size);
      if (!read) return {"", Piece::Then::kEnd, true};
      const size_t whole = read->rfind('\n');
      if (whole == std::string::npos) {
        if (size == kReadBytes) return {"", Piece::Then::kEnd, true};
      } else {
        for (size_t at = 0; at <= whole;) {
          const size_t end = read->find('\n', at);
          AddLine(piece, read->substr(at, end - at));
          at = end + 1;
        }
        offset_ += static_cast<int64_t>(whole) + 1;
        if (piece.then != Piece::Then::kEnd) piece.then = Piece::Then::kMore;
      }
    }
    const int64_t now = MonotonicNanos();
    if (piece.bytes.empty() && now - said_ns_ >= heartbeat_ns_) piece.bytes = ": still here\n\n";
    if (!piece.bytes.empty()) said_ns_ = now;
    return piece;
  }

  void AddLine(Piece& piece, const std::string& line) {
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object()) return;
    const int64_t seq = event.value("seq", int64_t{-1});
    const std::string type = event.value("type", "");
    if (type == "session_stopped") piece.then = Piece::Then::kEnd;
    if (seq <= after_) return;
    piece.bytes += "id: " + std::to_string(seq) + "\nevent: " + type + "\ndata: " + ToText(event) + "\n\n";
  }

  // Holds the longest event.
  static constexpr int64_t kReadBytes = int64_t{256} << 10;

  SessionService& sessions_;
  const Caller caller_;
  const std::string id_;
  const int64_t heartbeat_ns_;
  int64_t said_ns_;
  int64_t after_;
  int64_t offset_ = 0;
  const std::unique_ptr<Subscription> subscription_;
};

}  // namespace

Result<std::string> PathInside(const std::string& text) {
  if (text.empty()) return Error::Invalid("path: is empty");
  std::string path = text;
  if (path[0] != '/') {
    const std::string first = path.substr(0, path.find('/'));
    const bool known = first == "workspace" || first == "scratch" || first == "tmp";
    path = (known ? "/" : "/workspace/") + path;
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.size() > 4095) return Error::Invalid("path: is longer than the kernel takes");
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at + 1), path.size());
    const std::string_view name = std::string_view(path).substr(at + 1, end - at - 1);
    if (name == ".." || name == ".") return Error::Invalid("path: must not contain \".\" or \"..\"");
    if (name.size() > 255) return Error::Invalid("path: a name is longer than 255 bytes");
    at = end;
  }
  return path;
}

Answer SendSessionFile(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<std::string> path = PathInside(call.path[1]);
    if (!path) return Problem(path.error());
    Result<SessionFile> file = sessions.OpenFile(*call.caller, call.path[0], *path);
    if (!file) return Problem(file.error());
    Range range{0, file->bytes};
    Response head = Plain(200, "application/octet-stream", "");
    if (const auto field = call.request.Field("range")) {
      const Result<std::optional<Range>> asked = ReadRange(*field, file->bytes);
      if (!asked) {
        Response refused = Problem(416, asked.error().message, "Range");
        refused.fields.emplace_back("Content-Range", "bytes */" + std::to_string(file->bytes));
        return refused;
      }
      if (*asked) {
        range = **asked;
        head.status = 206;
        head.fields.emplace_back("Content-Range", "bytes " + std::to_string(range.begin) + "-" +
                                                      std::to_string(range.begin + range.bytes - 1) + "/" +
                                                      std::to_string(file->bytes));
      }
    }
    Sandbox(head);
    head.fields.emplace_back("Accept-Ranges", "bytes");
    head.fields.emplace_back("X-Caisson-Mode", Octal(file->mode));
    head.fields.emplace_back("Content-Disposition",
                             "attachment; filename*=UTF-8''" + PercentEncode(path->substr(path->rfind('/') + 1)));
    auto body = std::make_unique<SegmentStream>();
    body->Add(std::move(file->file), range.bytes, range.begin);
    return Streamed{std::move(head), range.bytes, std::move(body)};
  });
}

Answer PutSessionFile(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<std::string> path = PathInside(call.path[1]);
    if (!path) return Problem(path.error());
    const Result<int64_t> mode = ReadMode(call.query);
    if (!mode) return BadParameter(mode.error());
    if (const auto type = call.query.Text("type")) {
      if (*type != "directory") return Problem(400, "type: is not directory", "type");
      if (call.request.content_length != 0) return Problem(400, "type: a directory has no bytes", "type");
      const Status made = sessions.MakeDirectory(*call.caller, call.path[0], *path, *mode);
      if (!made) return Problem(made.error());
      return Json(200, {{"path", *path}, {"type", "directory"}});
    }
    const Request& request = call.request;
    const Status put = sessions.PutFile(*call.caller, call.path[0], *path, request.body_file, request.body,
                                        request.content_length, *mode);
    if (!put) return Problem(put.error());
    return Json(200, {{"path", *path}, {"bytes", request.content_length}});
  });
}

Answer RemoveSessionFile(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const Result<std::string> path = PathInside(call.path[1]);
    if (!path) return Problem(path.error());
    if (const Status removed = sessions.RemoveFile(*call.caller, call.path[0], *path); !removed)
      return Problem(removed.error());
    return Plain(204, "application/json", "");
  });
}

Answer ListSessionFiles(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const auto stat = call.query.Text("stat"), list = call.query.Text("list");
    if (stat && list) return Problem(400, "stat: give stat or list, not both", "stat");
    const Result<std::string> path = PathInside(stat ? *stat : list.value_or("/workspace"));
    if (!path) return BadParameter(path.error());
    return JsonOr(stat ? sessions.StatFile(*call.caller, call.path[0], *path)
                       : sessions.ListFiles(*call.caller, call.path[0], *path));
  });
}

Answer ShowSessionEvents(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    Result<int64_t> after = call.query.Number("after", -1, -1, INT64_MAX);
    if (!after) return BadParameter(after.error());
    if (const auto last = call.request.Field("last-event-id")) {
      after = ParseCount(*last);
      if (!after) return Problem(400, "Last-Event-ID is not an event's number", "Last-Event-ID");
    }
    Result<Document> document = sessions.Recorded(*call.caller, call.path[0], "events.jsonl");
    if (!document) return Problem(document.error());
    const auto accept = call.request.Field("accept");
    if (accept && accept->find("text/event-stream") != std::string_view::npos) {
      return Streamed{Plain(200, "text/event-stream", ""), std::nullopt,
                      std::make_unique<LineStream>(call, sessions, *after)};
    }
    Response head = Plain(200, "application/jsonl", "");
    Sandbox(head);
    auto body = std::make_unique<SegmentStream>();
    const int64_t bytes = document->bytes;
    body->Add(std::move(document->file), bytes);
    return Streamed{std::move(head), bytes, std::move(body)};
  });
}

}  // namespace caisson::service::http
