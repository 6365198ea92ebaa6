// A verification request: what a caller wants verified, exactly as the contract spells it. Parsing is strict: a request
// is taken whole or refused with the path of the first fault; nothing is half-read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace caisson::verify {

enum class Mode { kBalanced, kStrict };
enum class Access { kReadOnly, kCopyOnWrite, kReadWrite };

struct Check {
  std::string name;
  std::string tier;  // "syntax", "run", "test", or the caller's own word
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;
  std::optional<std::string> stdin_text;
  std::optional<int64_t> timeout_ms;
  std::string cwd;  // empty: /workspace
};

struct SourceFile {
  std::string name;  // relative, below /workspace
  std::string bytes;
};

struct Source {
  // Exactly one of the three is set.
  std::optional<std::string> path;
  std::vector<SourceFile> files;
  std::optional<std::string> archive;  // content hash "sha256:…"
};

// Only what the request sets; the rest comes from the profile.
struct RequestedLimits {
  std::optional<int64_t> command_timeout_ms, budget_ms, cpu_millis, memory_bytes, processes, output_bytes, scratch_bytes;
};

struct Mount {
  std::string source;
  std::string target;
  Access access = Access::kReadOnly;
};

struct Network {
  bool allowlist = false;  // false: mode none
  std::vector<std::string> allow;
};

struct Request {
  std::string request_id;  // generated when the caller gave none
  int64_t attempt = 1;
  Mode mode = Mode::kBalanced;
  std::string profile;  // empty: the mode's own
  Source source;
  std::vector<Check> checks;  // empty: the default checks of the detected language
  RequestedLimits limits;
  Network network;
  std::vector<Mount> mounts;
  std::vector<std::string> artifacts;
  // For the service; parsed and kept here so that one document serves both.
  std::string idempotency_key;
  int64_t priority = 0;
  std::map<std::string, std::string> labels;
  std::string callback_url;
  std::string deadline;
};

inline constexpr size_t kMaxRequestBytes = size_t{64} << 20;

// `text` is the whole document. Errors are ErrorKind::kInvalid and name the field by path ("checks[1].argv[0]").
Result<Request> ParseRequest(std::string_view text);

// A fresh id that satisfies the contract's pattern.
std::string GenerateRequestId();
// True when `id` matches [A-Za-z0-9._-]{1,128}.
bool IsValidRequestId(std::string_view id);

}  // namespace caisson::verify
