// The routes of the API, as one table. schemas/openapi.yaml describes the same to the world; a test compares the two.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "service/http/message.h"
#include "service/http/server.h"
#include "service/http/target.h"
#include "service/service.h"

namespace caisson::service::http {

// One request on its way through a route, on a pool thread.
struct Call {
  Service& service;
  const ServerBounds& bounds;
  const Request& request;
  const Caller* caller;           // null where anybody may ask and did not say who he is
  std::vector<std::string> path;  // what stands in the template's braces, decoded
  Query query;
  Wake wake;
};

enum class BodyKind : uint8_t { kNone, kJson, kOptionalJson, kOctets };

struct Route {
  std::string_view method;
  std::string_view path;  // "/v1/jobs/{id}:cancel"; "{path}" at the end takes slashes too
  bool open = false;      // to anybody
  BodyKind body = BodyKind::kNone;
  int64_t max_body_bytes = 0;  // 0: the server's bound
  std::vector<std::string_view> query;
  Answer (*answer)(const Call&) = nullptr;
};

std::span<const Route> Routes();

struct Match {
  const Route* route = nullptr;      // null: none
  std::vector<std::string> path;     // what stands in its braces
  std::vector<std::string> methods;  // of all routes with such a path, for Allow
};
// `path` is the target without its query.
Match FindRoute(std::string_view method, std::string_view path);

// jobs.cc
Answer SubmitJob(const Call& call);
Answer SubmitBatch(const Call& call);
Answer ListJobs(const Call& call);
Answer ShowJob(const Call& call);
Answer ShowResult(const Call& call);
Answer ShowAttestation(const Call& call);
Answer CancelJob(const Call& call);
Answer PutArchive(const Call& call);
// job_streams.cc
Answer ShowEvents(const Call& call);
Answer ShowLogs(const Call& call);
Answer SendArtifact(const Call& call);
// operators.cc
Answer ListApprovals(const Call& call);
Answer ShowApproval(const Call& call);
Answer GrantApproval(const Call& call);
Answer DenyApproval(const Call& call);
Answer ListDeadLetters(const Call& call);
Answer ShowDeadLetter(const Call& call);
Answer RequeueDeadLetter(const Call& call);
Answer DropDeadLetter(const Call& call);
// about.cc
Answer ShowHealth(const Call& call);
Answer ShowReadiness(const Call& call);
Answer ShowMetrics(const Call& call);
Answer ShowVersion(const Call& call);
Answer ShowSchema(const Call& call);

}  // namespace caisson::service::http
