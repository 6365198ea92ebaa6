#include "service/http/problem.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "service/http/status.h"

namespace caisson::service::http {

namespace {

using nlohmann::json;

constexpr int kRetryAfterSeconds = 1;
constexpr char kOurFault[] = "the service failed; its log has details under this answer's X-Request-Id";

std::string TypeOf(int status) {
  std::string name = ReasonPhrase(status);
  for (char& c : name) c = c == ' ' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return "urn:caisson:problem:" + name;
}

// Messages about a value begin with its path: `limits.cpu: expected a number`, `files["a/b"]: …`.
std::string FieldOf(const std::string& message) {
  bool quoted = false;
  for (size_t i = 0; i < message.size(); ++i) {
    const char c = message[i];
    if (c == '"' && (i == 0 || message[i - 1] != '\\')) quoted = !quoted;
    if (quoted) continue;
    if (c == ':' && i > 0 && i + 1 < message.size() && message[i + 1] == ' ') return message.substr(0, i);
    if (c == ' ') return "";
  }
  return "";
}

std::string DetailOf(const Error& error) { return error.kind == ErrorKind::kSystem ? kOurFault : error.message; }

std::string FieldOf(const Error& error) {
  const bool names = error.kind == ErrorKind::kInvalid || error.kind == ErrorKind::kDenied;
  return names ? FieldOf(error.message) : "";
}

}  // namespace

std::string ToText(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

Response Plain(int status, const char* content_type, std::string body) {
  Response response;
  response.status = status;
  response.fields = {
      {"Content-Type", content_type}, {"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}};
  response.body = std::move(body);
  return response;
}

Response JsonText(int status, std::string text) { return Plain(status, "application/json", std::move(text)); }
Response Json(int status, const json& document) { return JsonText(status, ToText(document)); }

json ProblemDocument(int status, const std::string& detail, const std::string& field) {
  json document = {{"type", TypeOf(status)}, {"title", ReasonPhrase(status)}, {"status", status}, {"detail", detail}};
  if (!field.empty()) document["field"] = field;
  return document;
}

json ProblemDocument(const Error& error) {
  json document = ProblemDocument(StatusOf(error), DetailOf(error), FieldOf(error));
  // Of a call that failed inside a session, about a path that the caller named. Our own failures stay in the log.
  const char* name = error.kind == ErrorKind::kSystem ? nullptr : ::strerrorname_np(error.errno_value);
  if (error.errno_value != 0 && name != nullptr) document["errno"] = name;
  return document;
}

Response Problem(int status, const std::string& detail, const std::string& field, int retry_after_s) {
  Response response = Plain(status, "application/problem+json", ToText(ProblemDocument(status, detail, field)));
  if (retry_after_s > 0) response.fields.emplace_back("Retry-After", std::to_string(retry_after_s));
  return response;
}

int StatusOf(const Error& error) {
  switch (error.kind) {
    case ErrorKind::kInvalid:
    case ErrorKind::kUnsupported:
      return 422;
    case ErrorKind::kDenied:
      return 403;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kConflict:
      return 409;
    case ErrorKind::kExhausted:
      return 429;
    case ErrorKind::kSystem:
      return 503;
  }
  return 503;
}

Response Problem(const Error& error) {
  const int status = StatusOf(error);
  Response response = Plain(status, "application/problem+json", ToText(ProblemDocument(error)));
  if (status == 429 || status == 503) response.fields.emplace_back("Retry-After", std::to_string(kRetryAfterSeconds));
  if (error.kind == ErrorKind::kSystem) response.fault = error.message;
  return response;
}

}  // namespace caisson::service::http
