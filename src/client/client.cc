#include "client/client.h"

#include "base/units.h"
#include "base/version.h"
#include "client/wire.h"
#include "verify/json_reader.h"

namespace caisson::client {

namespace {

constexpr int64_t kSendMs = 60'000;
constexpr size_t kMaxReplyBytes = size_t{128} << 20;  // a result holds at most the output limit, escaped
constexpr size_t kMaxProblemBytes = size_t{1} << 20;

bool IsGood(int status) { return status >= 200 && status < 300; }

std::string HeadOf(const Ask& ask, const Endpoint& endpoint) {
  std::string head = ask.method + " " + ask.target + " HTTP/1.1\r\nHost: " + endpoint.HostField() +
                     "\r\nUser-Agent: caisson/" + kVersion + "\r\nConnection: close\r\n";
  if (!endpoint.token.empty()) head += "Authorization: Bearer " + endpoint.token + "\r\n";
  if (!ask.body.empty())
    head += "Content-Type: " + ask.content_type + "\r\nContent-Length: " + std::to_string(ask.body.size()) + "\r\n";
  for (const auto& [name, value] : ask.fields) head += name + ": " + value + "\r\n";
  return head + "\r\n";
}

Reply ToReply(const ReplyReader& reader, std::string body) {
  Reply reply;
  reply.status = reader.status();
  reply.location = reader.Field("location").value_or("");
  if (const auto seconds = reader.Field("retry-after"))
    if (const Result<int64_t> number = ParseCount(*seconds); number) reply.retry_after_s = *number;
  reply.body = std::move(body);
  return reply;
}

Result<nlohmann::json> ReadDocument(std::string_view text) {
  verify::JsonBounds bounds;
  bounds.max_bytes = kMaxReplyBytes;
  bounds.max_depth = 64;
  return verify::ReadJson(text, bounds);
}

}  // namespace

Result<ReplyReader> Client::Exchange(const Ask& ask,
                                     const std::function<Status(const ReplyReader&, std::string_view)>& sink) const {
  CAISSON_TRY(const std::unique_ptr<Wire> wire, Wire::Open(endpoint_, ask.connect_ms));
  // A server may refuse a body before it has read all of it: then sending fails, but the answer can be read.
  Status sent = wire->Send(HeadOf(ask, endpoint_), kSendMs);
  if (sent) sent = wire->Send(ask.body, kSendMs);
  ReplyReader reader;
  char bytes[65536];
  for (;;) {
    const Result<size_t> count = wire->Receive(bytes, sizeof(bytes), ask.timeout_ms);
    if (!count) return Error(!sent ? sent.error() : count.error()).In(endpoint_.Description());
    if (*count == 0) {
      const Status end = reader.End();
      if (!end) return Error(!sent ? sent.error() : end.error()).In(endpoint_.Description());
      return reader;
    }
    CAISSON_TRY(const bool whole,
                reader.Take({bytes, *count}, [&](std::string_view piece) { return sink(reader, piece); }));
    if (whole) return reader;
  }
}

Result<Reply> Client::Send(const Ask& ask) const {
  std::string body;
  CAISSON_TRY(const ReplyReader reader, Exchange(ask, [&](const ReplyReader&, std::string_view piece) -> Status {
                body.append(piece);
                if (body.size() > kMaxReplyBytes)
                  return Error{ErrorKind::kSystem, 0, "the answer is larger than " + FormatSize(kMaxReplyBytes)};
                return {};
              }));
  return ToReply(reader, std::move(body));
}

Result<std::string> Client::Text(const Ask& ask) const {
  CAISSON_TRY(Reply reply, Send(ask));
  if (!IsGood(reply.status)) return ProblemOf(reply);
  return std::move(reply.body);
}

Result<nlohmann::json> Client::Json(const Ask& ask) const {
  CAISSON_TRY(const std::string text, Text(ask));
  Result<nlohmann::json> document = ReadDocument(text);
  if (!document) return Error{ErrorKind::kSystem, 0, "the answer is not JSON: " + document.error().message};
  return document;
}

Status Client::Stream(const Ask& ask, const ReplyReader::Sink& sink) const {
  std::string problem;
  CAISSON_TRY(const ReplyReader reader, Exchange(ask, [&](const ReplyReader& head, std::string_view piece) -> Status {
                if (IsGood(head.status())) return sink(piece);
                problem.append(piece.substr(0, kMaxProblemBytes - std::min(kMaxProblemBytes, problem.size())));
                return {};
              }));
  if (IsGood(reader.status())) return {};
  return ProblemOf(ToReply(reader, std::move(problem)));
}

Error ProblemOf(const Reply& reply) {
  std::string detail = "HTTP status " + std::to_string(reply.status);
  if (const Result<nlohmann::json> document = ReadDocument(reply.body); document && document->is_object()) {
    const auto found = document->find("detail");
    if (found != document->end() && found->is_string()) detail = *found;
  }
  switch (reply.status) {
    case 401:
      return Error::Denied(detail + " (set CAISSON_TOKEN or --token-file)");
    case 403:
      return Error::Denied(std::move(detail));
    case 404:
      return Error::NotFound(std::move(detail));
    case 409:
      return Error::Conflict(std::move(detail));
    case 429:
    case 503:
      return Error::Exhausted(std::move(detail));
    default:
      if (reply.status >= 400 && reply.status < 500) return Error::Invalid(std::move(detail));
      return Error{ErrorKind::kSystem, 0, std::move(detail)};
  }
}

}  // namespace caisson::client
