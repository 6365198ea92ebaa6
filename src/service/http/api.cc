#include "service/http/api.h"

#include <exception>
#include <optional>
#include <utility>

#include "policy/syntax.h"
#include "service/http/gate.h"
#include "service/http/problem.h"
#include "service/http/routes.h"

namespace caisson::service::http {

namespace {

std::pair<std::string_view, std::string_view> SplitTarget(std::string_view target) {
  const size_t mark = target.find('?');
  if (mark == std::string_view::npos) return {target, {}};
  return {target.substr(0, mark), target.substr(mark + 1)};
}

Response Named(Response response, const Route& route) {
  response.route = std::string(route.path);
  return response;
}

bool IsJson(std::string_view content_type) {
  std::string type = policy::ToLowerAscii(std::string(content_type));
  std::erase(type, ' ');
  return type == "application/json" || type == "application/json;charset=utf-8" ||
         type == "application/json;charset=\"utf-8\"";
}

// The fault of the body, as far as the head shows it.
std::optional<Response> JudgeBody(const Request& head, const Route& route) {
  if (head.content_length == 0) {
    if (route.body == BodyKind::kJson || route.body == BodyKind::kOctets)
      return Problem(400, "a body is needed here, with its Content-Length");
    return std::nullopt;
  }
  if (route.body == BodyKind::kNone) return Problem(400, "this route takes no body");
  const std::string_view type = head.Field("content-type").value_or("");
  if (const auto encoding = head.Field("content-encoding"); encoding && *encoding != "identity")
    return Problem(415, "bodies must not have a Content-Encoding");
  if (route.body == BodyKind::kFile) return std::nullopt;
  if (route.body == BodyKind::kOctets || route.body == BodyKind::kOptionalOctets) {
    if (type != "application/octet-stream") return Problem(415, "the body must be application/octet-stream");
  } else if (!IsJson(type)) {
    return Problem(415, "the body must be application/json");
  }
  return std::nullopt;
}

Response NoRoute(const Match& match) {
  if (match.methods.empty()) return Problem(404, "there is nothing at this path; see /openapi.yaml");
  std::string allowed;
  for (const std::string& method : match.methods) allowed += (allowed.empty() ? "" : ", ") + method;
  Response response = Problem(405, "this path takes only " + allowed);
  response.fields.emplace_back("Allow", allowed);
  return response;
}

constexpr int64_t kLargeBody = int64_t{64} << 10;

Response ToResponse(const Refusal& refusal) {
  Response response = Problem(refusal.status, refusal.detail, "", refusal.retry_after_s);
  if (refusal.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer realm=\"caisson\"");
  return response;
}

}  // namespace

Api::Api(const ServerConfig& config, Service& service, std::unique_ptr<Authenticator> authenticator)
    : bounds_(config.bounds),
      allowed_hosts_(config.allowed_hosts),
      service_(service),
      authenticator_(std::move(authenticator)) {}

Result<std::shared_ptr<Api>> Api::Make(const ServerConfig& config, Service& service) {
  CAISSON_TRY(std::unique_ptr<Authenticator> authenticator, Authenticator::Make(config));
  return std::shared_ptr<Api>(new Api(config, service, std::move(authenticator)));
}

std::variant<int64_t, Response> Api::Begin(Request& head) {
  if (const auto refusal = JudgeOrigin(head, allowed_hosts_)) return ToResponse(*refusal);
  const Match match = FindRoute(head.method, SplitTarget(head.target).first);
  const bool open = match.route != nullptr && match.route->open;
  std::variant<Caller, Refusal> asked = Caller();
  // Credentials are optional here but must be valid; authenticated callers see more.
  if (!open || head.peer.local || head.Field("authorization")) {
    asked = authenticator_->Authenticate(head);
    if (auto* caller = std::get_if<Caller>(&asked)) {
      head.caller = std::move(*caller);
    } else if (!open || head.Field("authorization")) {
      return ToResponse(std::get<Refusal>(asked));
    }
  }
  if (match.route == nullptr) return NoRoute(match);
  if (auto refusal = JudgeBody(head, *match.route)) return Named(*std::move(refusal), *match.route);
  if (match.route->body == BodyKind::kNone) return 0;
  const int64_t most = match.route->max_body_bytes != 0         ? match.route->max_body_bytes
                       : match.route->body == BodyKind::kFile   ? bounds_.session_file_bytes
                       : match.route->body == BodyKind::kOctets ? bounds_.body_bytes
                                                                : bounds_.json_body_bytes;
  // A large body that would be refused after it was read is refused before: reading it costs every tenant's disk.
  if (head.caller && head.content_length > kLargeBody && head.content_length <= most) {
    if (const Status room = service_.RoomForBody(*head.caller, head.content_length); !room)
      return Named(Problem(room.error()), *match.route);
  }
  return most;
}

Answer Api::Handle(const Request& request, const Wake& wake) {
  const auto [path, query_text] = SplitTarget(request.target);
  Match match = FindRoute(request.method, path);
  const Route& route = *match.route;
  try {
    Result<Query> query = Query::Parse(query_text, route.query);
    if (!query) {
      return Named(
          Problem(400, query.error().message, query.error().message.substr(0, query.error().message.find(':'))), route);
    }
    const Call call{
        service_,          bounds_, request, request.caller ? &*request.caller : nullptr, std::move(match.path),
        *std::move(query), wake};
    Answer answer = route.answer(call);
    if (auto* response = std::get_if<Response>(&answer)) response->route = std::string(route.path);
    if (auto* streamed = std::get_if<Streamed>(&answer)) streamed->head.route = std::string(route.path);
    return answer;
  } catch (const std::exception& fault) {
    // Libraries may throw, our code does not. An exception in one request must not end the service.
    return Named(Problem(Error{ErrorKind::kSystem, 0, fault.what()}), route);
  }
}

Response Api::Refuse(int status, const std::string& detail, int retry_after_s) {
  return Problem(status, detail, "", retry_after_s);
}

Result<std::unique_ptr<Server>> StartServer(const ServerConfig& config, Service& service) {
  CAISSON_TRY(std::shared_ptr<Api> api, Api::Make(config, service));
  return Server::Start(config, std::move(api));
}

}  // namespace caisson::service::http
