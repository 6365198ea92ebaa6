// What a session is opened with. The command line or a service writes it to request.json of the session's directory;
// the supervisor reads it there, judges it by policy and opens the sandbox. Paths are absolute.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"
#include "runtime/runtime.h"
#include "session/directory.h"
#include "session/session_record.h"
#include "verify/admission.h"

namespace caisson::session {

inline constexpr int64_t kDefaultIdleMs = int64_t{30} * 60 * 1000;
inline constexpr int64_t kDefaultTtlMs = int64_t{8} * 3600 * 1000;

struct OpenRequest {
  std::string name;     // empty: after the project
  std::string project;  // empty: none
  WorkspaceMode workspace_mode = WorkspaceMode::kCow;
  int64_t idle_ms = kDefaultIdleMs;
  int64_t ttl_ms = kDefaultTtlMs;
  std::optional<int64_t> disk_bytes;  // absent: the profile's scratch_bytes
  std::vector<verify::Mount> mounts;
  std::vector<std::pair<std::string, std::string>> env;  // of every command
  std::map<std::string, std::string> labels;
  std::string forked_from;  // an id; its layer was copied into this session's directory already, and this is
  std::string stamp;        // its stamp

  // Who asks, and the rules by which that is judged (verify::Authority).
  std::string profile = "session";
  std::string profiles, policy, role = "operator", runtime, approver, credentials_file, image;
  std::vector<std::string> approved_rules;
  verify::OperatorLimits limits;
  verify::Network network;
  // A person can be asked while it runs: at the terminal that opened it, or because the caller said so (--ask).
  bool attended = false;
  // False: the profile and the overrides alone allow; the fields above may only tighten. A service's requests.
  bool from_command_line = true;
};

nlohmann::json ToJson(const OpenRequest& request);
Result<OpenRequest> ReadOpenRequest(std::string_view text);

struct AdmittedSession {
  policy::RunPlan plan;
  std::string policy_digest;
  std::string project;  // canonical; empty: none
  std::string base;     // what changes are compared with
  std::string stamp;    // of the project's file system, before anything was mounted or copied
  int64_t disk_bytes = 0;
};

// The profile that the request is judged by, from the policy's files as they are now, and a digest of it. Approvals are
// bound to the digest.
struct JudgedPolicy {
  policy::Profile profile;
  std::string digest;
};
Result<JudgedPolicy> JudgePolicy(const OpenRequest& request, const SessionDirectory& directory,
                                 const runtime::Runtimes& runtimes);

// Judges the request and prepares the session's directory for its workspace. `mode` may differ from the one asked for:
// a copy where an overlay turned out to be impossible. Errors: kInvalid, kDenied, or the system's.
using OpenImage = std::function<Result<policy::PlannedImage>(const std::string& reference)>;
Result<AdmittedSession> Admit(const OpenRequest& request, WorkspaceMode mode, const SessionDirectory& directory,
                              const runtime::Runtimes& runtimes, const OpenImage& open_image);

}  // namespace caisson::session
