// What the routes of sessions share.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "service/http/bodies.h"
#include "service/http/problem.h"
#include "service/http/routes.h"
#include "service/session_service.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request.h"

namespace caisson::service::http {

// Calls `answer` with the service's sessions; 404 where it has none.
template <typename Make>
Answer WithSessions(const Call& call, Make make) {
  SessionService* sessions = call.service.Sessions();
  if (sessions == nullptr) return Problem(404, "this service has no sessions");
  return make(*sessions);
}

// The body as JSON; an absent one is an empty object. 400 when it is not JSON.
inline std::optional<Response> ReadBody(const Call& call, nlohmann::json& body) {
  std::string held;
  const Result<std::string_view> text = WholeBody(call.request, held);
  if (!text) return Problem(text.error());
  body = nlohmann::json::object();
  if (text->empty()) return std::nullopt;
  verify::JsonBounds bounds;
  bounds.max_bytes = verify::kMaxRequestBytes;
  Result<nlohmann::json> read = verify::ReadJson(*text, bounds);
  if (!read) return Problem(400, read.error().message);
  body = *std::move(read);
  return std::nullopt;
}

// For calls whose body may be left out and says nothing.
inline std::optional<Response> ExpectNoMembers(const Call& call) {
  nlohmann::json body;
  if (auto fault = ReadBody(call, body)) return fault;
  const Status object = verify::ExpectObject(body, "", {});
  return object ? std::nullopt : std::optional<Response>(Problem(object.error()));
}

inline Response BadParameter(const Error& error) {
  return Problem(400, error.message, error.message.substr(0, error.message.find(':')));
}

// SECURITY: output and files are untrusted. Browsers must not guess a type or run anything in them.
inline void Sandbox(Response& response) {
  response.fields.emplace_back("Content-Security-Policy", "sandbox; default-src 'none'");
}

// The path inside. One without a slash in front is below /workspace, unless it begins with one of the directories that
// every session can write to.
Result<std::string> PathInside(const std::string& text);

inline Answer JsonOr(const Result<nlohmann::json>& document, int status = 200) {
  return document ? Json(status, *document) : Problem(document.error());
}

}  // namespace caisson::service::http
