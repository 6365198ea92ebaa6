// A verification request, exactly as the contract spells it. Parsing is strict: a request is accepted completely or
// refused with the path of the first fault; it is never read in part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"

namespace caisson::verify {

enum class Mode { kBalanced, kStrict };
using policy::Access;

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
  std::optional<std::string> archive;  // content hash "sha256:…", in lower case
  std::string archive_format;          // "tar" or "zip"; empty: detected from the content
  // The contents of the archive. Not part of a request: the owner of the archive adds them before admission.
  std::optional<std::vector<policy::PlannedFile>> unpacked;
};

// Only the limits that the request sets; the others come from the profile.
struct RequestedLimits {
  std::optional<int64_t> command_timeout_ms;
  std::optional<int64_t> budget_ms;
  std::optional<int64_t> cpu_millis;  // thousandths of a CPU; the document has CPUs, possibly fractional
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> processes;
  std::optional<int64_t> output_bytes;
  std::optional<int64_t> scratch_bytes;
  std::optional<int64_t> cpu_time_ms;
  std::optional<int64_t> stack_bytes;
};

struct Mount {
  std::string source;
  std::string target;
  Access access = Access::kReadOnly;
};

struct Network {
  bool given = false;      // false: the profile decides
  bool allowlist = false;  // false: mode none
  std::vector<std::string>
      allow;                      // "host[:port]" in lower case, "*." or "**." in front; none: all that the profile has
  std::vector<std::string> deny;  // besides what the profile denies
  std::vector<std::string> credentials;  // names in the operator's credentials file
  std::optional<bool> ask;
  std::vector<uint16_t> host_ports;  // of the host's loopback; the command line only, no document can ask for one
};

struct Request {
  std::string request_id;  // generated when the caller gave none
  int64_t attempt = 1;
  Mode mode = Mode::kBalanced;
  std::string profile;  // empty: the mode's own
  std::string image;    // name or "sha256:…"; empty: the host's programs
  Source source;
  std::vector<Check> checks;  // empty: the default checks of the detected language
  RequestedLimits limits;
  Network network;
  std::vector<Mount> mounts;
  std::vector<std::string> artifacts;
  // For the service; parsed and kept here so that one document serves both uses.
  std::string idempotency_key;  // empty: none
  int64_t priority = 0;
  std::map<std::string, std::string> labels;
  std::string callback_url;  // empty: none
  std::string deadline;      // RFC 3339; empty: none
};

inline constexpr size_t kMaxRequestBytes = size_t{64} << 20;
inline constexpr size_t kMaxChecks = 64;
// The kernel gives argv and env together 2 MiB of a new program's stack (a quarter of RLIMIT_STACK) and fails exec with
// E2BIG beyond that; half of it leaves room for what the sandbox adds.
inline constexpr size_t kMaxArgvEnvBytes = size_t{1} << 20;
using policy::kMaxCpus;
using policy::kMaxLimitBytes;
using policy::kMaxProcesses;
using policy::kMaxTimeoutMs;
using policy::kMinMemoryBytes;
inline constexpr int64_t kMaxAttempt = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxPriority = 100;  // the minimum is its negative

// `text` is the whole document. Errors are ErrorKind::kInvalid and name the field by path ("checks[1].argv[0]").
Result<Request> ParseRequest(std::string_view text);
// The same for a request inside another document, at `path`.
Result<Request> ReadRequest(const nlohmann::json& value, const std::string& path);

// A fresh id that satisfies the contract's pattern.
std::string GenerateRequestId();
// True when `id` matches [A-Za-z0-9._-]{1,128}.
bool IsValidRequestId(std::string_view id);

}  // namespace caisson::verify
