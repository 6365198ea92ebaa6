#include "service/http/routes.h"

#include <algorithm>
#include <optional>

#include "base/percent.h"
#include "policy/syntax.h"

namespace caisson::service::http {

namespace {

constexpr int64_t kSmallBody = 16 << 10;
constexpr int64_t kInputBody = int64_t{8} << 20;
constexpr size_t kMaxIdBytes = 128;

const std::vector<Route>& Table() {
  using enum BodyKind;
  // Built on first use, so that a program that only links this does no work at start.
  static const std::vector<Route> routes = {
      {"POST", "/v1/jobs", false, kJson, 0, {"wait"}, SubmitJob},
      {"GET", "/v1/jobs", false, kNone, 0, {"cursor", "limit", "state", "request_id", "label", "tenant"}, ListJobs},
      {"POST", "/v1/jobs:batch", false, kJson, 0, {}, SubmitBatch},
      {"GET", "/v1/jobs/{id}", false, kNone, 0, {}, ShowJob},
      {"GET", "/v1/jobs/{id}/result", false, kNone, 0, {"wait"}, ShowResult},
      {"GET", "/v1/jobs/{id}/attestation", false, kNone, 0, {}, ShowAttestation},
      {"GET", "/v1/jobs/{id}/events", false, kNone, 0, {"after", "limit"}, ShowEvents},
      {"GET", "/v1/jobs/{id}/logs", false, kNone, 0, {"follow", "from", "stream"}, ShowLogs},
      {"GET", "/v1/jobs/{id}/artifacts/{path}", false, kNone, 0, {}, SendArtifact},
      {"POST", "/v1/jobs/{id}:cancel", false, kOptionalJson, kSmallBody, {}, CancelJob},
      {"POST", "/v1/archives", false, kOctets, 0, {}, PutArchive},
      {"POST", "/v1/sessions", false, kJson, 0, {}, OpenSession},
      {"GET", "/v1/sessions", false, kNone, 0, {"cursor", "limit", "state", "label", "tenant"}, ListSessions},
      {"GET", "/v1/sessions/{id}", false, kNone, 0, {}, ShowSession},
      {"DELETE", "/v1/sessions/{id}", false, kNone, 0, {}, RemoveSession},
      {"POST", "/v1/sessions/{id}:stop", false, kOptionalJson, kSmallBody, {}, StopSession},
      {"POST", "/v1/sessions/{id}:extend", false, kJson, kSmallBody, {}, ExtendSession},
      {"POST", "/v1/sessions/{id}:fork", false, kOptionalJson, kSmallBody, {}, ForkSession},
      {"POST", "/v1/sessions/{id}:discard", false, kOptionalJson, kSmallBody, {}, DiscardSession},
      {"POST", "/v1/sessions/{id}:apply", false, kOptionalJson, kSmallBody, {}, ApplySession},
      {"GET", "/v1/sessions/{id}/diff", false, kNone, 0, {}, ShowSessionDiff},
      {"GET", "/v1/sessions/{id}/transcript", false, kNone, 0, {}, ShowTranscript},
      {"GET", "/v1/sessions/{id}/events", false, kNone, 0, {"after"}, ShowSessionEvents},
      {"POST", "/v1/sessions/{id}/exec", false, kJson, 0, {"wait"}, StartExec},
      {"GET", "/v1/sessions/{id}/exec/{n}", false, kNone, 0, {"wait"}, ShowExec},
      {"GET", "/v1/sessions/{id}/exec/{n}/stream", false, kNone, 0, {}, StreamExec},
      {"POST", "/v1/sessions/{id}/exec/{n}/stdin", false, kOptionalOctets, kInputBody, {"eof"}, WriteExecInput},
      {"POST", "/v1/sessions/{id}/exec/{n}:signal", false, kJson, kSmallBody, {}, SignalExec},
      {"GET", "/v1/sessions/{id}/files", false, kNone, 0, {"list", "stat"}, ListSessionFiles},
      {"GET", "/v1/sessions/{id}/files/{path}", false, kNone, 0, {}, SendSessionFile},
      {"PUT", "/v1/sessions/{id}/files/{path}", false, kFile, 0, {"mode", "type"}, PutSessionFile},
      {"DELETE", "/v1/sessions/{id}/files/{path}", false, kNone, 0, {}, RemoveSessionFile},
      {"GET", "/v1/sessions/{id}/archive", false, kNone, 0, {"path"}, SendSessionArchive},
      {"PUT", "/v1/sessions/{id}/archive", false, kFile, 0, {"path"}, PutSessionArchive},
      {"GET", "/v1/approvals", false, kNone, 0, {"state"}, ListApprovals},
      {"GET", "/v1/approvals/{id}", false, kNone, 0, {}, ShowApproval},
      {"POST", "/v1/approvals/{id}:grant", false, kJson, kSmallBody, {}, GrantApproval},
      {"POST", "/v1/approvals/{id}:deny", false, kJson, kSmallBody, {}, DenyApproval},
      {"GET", "/v1/dlq", false, kNone, 0, {"cursor", "limit", "tenant"}, ListDeadLetters},
      {"GET", "/v1/dlq/{id}", false, kNone, 0, {}, ShowDeadLetter},
      {"DELETE", "/v1/dlq/{id}", false, kNone, 0, {}, DropDeadLetter},
      {"POST", "/v1/dlq/{id}:requeue", false, kNone, 0, {}, RequeueDeadLetter},
      {"GET", "/healthz", true, kNone, 0, {}, ShowHealth},
      {"GET", "/readyz", true, kNone, 0, {}, ShowReadiness},
      {"GET", "/metrics", false, kNone, 0, {}, ShowMetrics},
      {"GET", "/version", true, kNone, 0, {}, ShowVersion},
      {"GET", "/openapi.yaml", true, kNone, 0, {}, ShowSchema},
      // Beside the description, which refers to them by name.
      {"GET", "/approval.schema.json", true, kNone, 0, {}, ShowSchema},
      {"GET", "/audit_record.schema.json", true, kNone, 0, {}, ShowSchema},
      {"GET", "/lifecycle_event.schema.json", true, kNone, 0, {}, ShowSchema},
      {"GET", "/runner_api_contract.schema.json", true, kNone, 0, {}, ShowSchema},
      {"GET", "/verification_request.schema.json", true, kNone, 0, {}, ShowSchema},
      {"GET", "/verification_result.schema.json", true, kNone, 0, {}, ShowSchema},
  };
  return routes;
}

std::string_view TakeSegment(std::string_view& path) {
  const std::string_view segment = path.substr(0, path.find('/'));
  path.remove_prefix(std::min(path.size(), segment.size() + 1));
  return segment;
}

// "{id}" or "{id}:verb" against one segment: the id.
std::optional<std::string> MatchId(std::string_view pattern, std::string_view segment) {
  const std::string_view verb = pattern.substr(pattern.find('}') + 1);
  if (segment.size() < verb.size() || segment.substr(segment.size() - verb.size()) != verb) return std::nullopt;
  auto id = PercentDecode(segment.substr(0, segment.size() - verb.size()));
  if (!id || !policy::IsWord(*id, "._-", kMaxIdBytes)) return std::nullopt;
  return id;
}

std::optional<std::vector<std::string>> MatchPath(std::string_view pattern, std::string_view path) {
  std::vector<std::string> values;
  while (!pattern.empty() && !path.empty()) {
    if (pattern == "{path}") {
      auto rest = PercentDecodeBytes(path);
      if (!rest) return std::nullopt;
      values.push_back(*std::move(rest));
      return values;
    }
    const std::string_view expected = TakeSegment(pattern);
    const std::string_view segment = TakeSegment(path);
    if (expected.empty() || expected.front() != '{') {
      if (expected != segment) return std::nullopt;
      continue;
    }
    auto id = MatchId(expected, segment);
    if (!id) return std::nullopt;
    values.push_back(*std::move(id));
  }
  if (!pattern.empty() || !path.empty()) return std::nullopt;
  return values;
}

}  // namespace

std::span<const Route> Routes() { return Table(); }

Match FindRoute(std::string_view method, std::string_view path) {
  Match match;
  // Splitting would lose a slash at the end.
  if (path.size() > 1 && path.back() == '/' && path.find("/artifacts/") == std::string_view::npos &&
      path.find("/files/") == std::string_view::npos) {
    return match;
  }
  for (const Route& route : Table()) {
    auto values = MatchPath(route.path, path);
    if (!values) continue;
    match.methods.emplace_back(route.method);
    if (route.method != method) continue;
    match.route = &route;
    match.path = *std::move(values);
  }
  return match;
}

}  // namespace caisson::service::http
