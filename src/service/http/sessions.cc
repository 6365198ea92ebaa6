// Opening sessions, looking at them and ending them.
#include <algorithm>

#include "base/units.h"
#include "base/words.h"
#include "policy/syntax.h"
#include "service/http/session_calls.h"

namespace caisson::service::http {

namespace {

using nlohmann::json;

constexpr int64_t kMaxPage = 1000;
constexpr std::string_view kStates[] = {"opening", "running",   "idle",   "stopped",
                                        "applied", "discarded", "failed", "lost"};

Result<SessionFilter> ReadSessionFilter(const Query& query) {
  SessionFilter filter;
  filter.tenant = query.Text("tenant").value_or("");
  filter.before_id = query.Text("cursor").value_or("");
  CAISSON_TRY(filter.limit, query.Number("limit", 100, 1, kMaxPage));
  for (const char* name : {"tenant", "cursor"}) {
    const auto text = query.Text(name);
    if (text && !policy::IsWord(*text, "._-", 128)) return Error::Invalid(std::string(name) + ": is no such id");
  }
  if (const auto label = query.Text("label")) {
    const size_t equals = label->find('=');
    if (equals == std::string::npos || equals == 0) return Error::Invalid("label: is not KEY=VALUE");
    filter.label_key = label->substr(0, equals);
    filter.label_value = label->substr(equals + 1);
  }
  if (const auto states = query.Text("state")) {
    for (size_t at = 0; at <= states->size();) {
      const std::string word = states->substr(at, states->find(',', at) - at);
      at += word.size() + 1;
      if (std::find(std::begin(kStates), std::end(kStates), word) == std::end(kStates))
        return Error::Invalid("state: there is no state " + Quoted(word));
      filter.states.push_back(word);
    }
  }
  return filter;
}

std::optional<Response> ReadKey(const Call& call, std::string& key) {
  const auto field = call.request.Field("idempotency-key");
  if (!field) return std::nullopt;
  if (const auto fault = policy::FaultInIdempotencyKey(*field))
    return Problem(400, "Idempotency-Key: " + *fault, "Idempotency-Key");
  key = *field;
  return std::nullopt;
}

Response Opened(const OpenedSession& opened) {
  Response response = Json(opened.existed ? 200 : 201, opened.document);
  response.fields.emplace_back("Location", "/v1/sessions/" + opened.document.value("id", ""));
  if (opened.existed) response.fields.emplace_back("Idempotency-Replayed", "true");
  return response;
}

// One of the files that a session records, from `offset` on; as it is now.
Answer SendRecorded(const Call& call, const char* name, const char* content_type) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    Result<Document> document = sessions.Recorded(*call.caller, call.path[0], name);
    if (!document) return Problem(document.error());
    Response head = Plain(200, content_type, "");
    Sandbox(head);
    auto body = std::make_unique<SegmentStream>();
    const int64_t bytes = document->bytes;
    body->Add(std::move(document->file), bytes);
    return Streamed{std::move(head), bytes, std::move(body)};
  });
}

}  // namespace

Answer OpenSession(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    std::string key;
    if (auto fault = ReadKey(call, key)) return *std::move(fault);
    std::string held;
    const Result<std::string_view> body = WholeBody(call.request, held);
    if (!body) return Problem(body.error());
    verify::JsonBounds bounds;
    bounds.max_bytes = verify::kMaxRequestBytes;
    const Result<OpenedSession> opened = sessions.Open(*call.caller, *body, key);
    if (!opened) {
      if (opened.error().kind == ErrorKind::kInvalid) {
        if (const auto read = verify::ReadJson(*body, bounds); !read) return Problem(400, read.error().message);
      }
      return Problem(opened.error());
    }
    return Opened(*opened);
  });
}

Answer ListSessions(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    Result<SessionFilter> filter = ReadSessionFilter(call.query);
    if (!filter) return BadParameter(filter.error());
    const auto limit = static_cast<size_t>(filter->limit++);  // one more, to know whether there is more
    Result<std::vector<json>> found = sessions.List(*call.caller, *filter);
    if (!found) return Problem(found.error());
    json page = {{"sessions", json::array()}};
    for (size_t i = 0; i < std::min(limit, found->size()); ++i) page["sessions"].push_back(std::move((*found)[i]));
    if (found->size() > limit) page["next_cursor"] = page["sessions"].back()["id"];
    return Json(200, page);
  });
}

Answer ShowSession(const Call& call) {
  return WithSessions(call,
                      [&](SessionService& sessions) { return JsonOr(sessions.Show(*call.caller, call.path[0])); });
}

Answer RemoveSession(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    if (const Status removed = sessions.Remove(*call.caller, call.path[0]); !removed) return Problem(removed.error());
    return Plain(204, "application/json", "");
  });
}

Answer StopSession(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    if (auto fault = ExpectNoMembers(call)) return *std::move(fault);
    return JsonOr(sessions.Stop(*call.caller, call.path[0]));
  });
}

Answer ExtendSession(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    json body;
    if (auto fault = ReadBody(call, body)) return *std::move(fault);
    return JsonOr(sessions.Extend(*call.caller, call.path[0], body));
  });
}

Answer ForkSession(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    std::string key;
    if (auto fault = ReadKey(call, key)) return *std::move(fault);
    json body;
    if (auto fault = ReadBody(call, body)) return *std::move(fault);
    const Result<OpenedSession> opened = sessions.Fork(*call.caller, call.path[0], body, key);
    if (!opened) return Problem(opened.error());
    return Opened(*opened);
  });
}

Answer DiscardSession(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    if (auto fault = ExpectNoMembers(call)) return *std::move(fault);
    return JsonOr(sessions.Discard(*call.caller, call.path[0]));
  });
}

Answer ShowSessionDiff(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    const auto accept = call.request.Field("accept");
    const bool patch = accept && accept->find("text/x-diff") != std::string_view::npos;
    Result<json> diff = sessions.Diff(*call.caller, call.path[0], patch);
    if (!diff || !patch) return JsonOr(diff);
    Response response = Plain(200, "text/x-diff", diff->value("patch", ""));
    Sandbox(response);
    return response;
  });
}

Answer ApplySession(const Call& call) {
  return WithSessions(call, [&](SessionService& sessions) -> Answer {
    json body;
    if (auto fault = ReadBody(call, body)) return *std::move(fault);
    const Result<json> report = sessions.Apply(*call.caller, call.path[0], body);
    if (!report) return Problem(report.error());
    return Json(report->value("applied", false) ? 200 : 409, *report);
  });
}

Answer ShowTranscript(const Call& call) { return SendRecorded(call, "transcript.cast", "application/x-asciicast"); }

}  // namespace caisson::service::http
