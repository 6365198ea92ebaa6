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
  const Caller* caller;           // null for an anonymous caller of a public route
  std::vector<std::string> path;  // the decoded values of the template's braces
  Query query;
  Wake wake;
};

// kFile: any bytes of any type, or none. Only for methods that a web page cannot send without asking (PUT).
enum class BodyKind : uint8_t { kNone, kJson, kOptionalJson, kOctets, kOptionalOctets, kFile };

struct Route {
  std::string_view method;
  std::string_view path;  // "/v1/jobs/{id}:cancel"; "{path}" at the end takes slashes too
  bool open = false;      // also to anonymous callers
  BodyKind body = BodyKind::kNone;
  int64_t max_body_bytes = 0;  // 0: the server's bound
  std::vector<std::string_view> query;
  Answer (*answer)(const Call&) = nullptr;
};

std::span<const Route> Routes();

struct Match {
  const Route* route = nullptr;      // null: none
  std::vector<std::string> path;     // the values of its braces
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
// sessions.cc
Answer OpenSession(const Call& call);
Answer ListSessions(const Call& call);
Answer ShowSession(const Call& call);
Answer RemoveSession(const Call& call);
Answer StopSession(const Call& call);
Answer ExtendSession(const Call& call);
Answer ForkSession(const Call& call);
Answer DiscardSession(const Call& call);
Answer ShowSessionDiff(const Call& call);
Answer ApplySession(const Call& call);
Answer ShowTranscript(const Call& call);
Answer ShowSessionEvents(const Call& call);
// session_exec.cc
Answer StartExec(const Call& call);
Answer ShowExec(const Call& call);
Answer StreamExec(const Call& call);
Answer WriteExecInput(const Call& call);
Answer SignalExec(const Call& call);
// session_archive.cc
Answer SendSessionArchive(const Call& call);
Answer PutSessionArchive(const Call& call);
// session_files.cc
Answer SendSessionFile(const Call& call);
Answer PutSessionFile(const Call& call);
Answer RemoveSessionFile(const Call& call);
Answer ListSessionFiles(const Call& call);
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
