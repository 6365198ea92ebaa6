// Any bytes may arrive as a request. None may crash the parser, and an accepted request keeps the promises that other
// code relies on.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "fault.h"
#include "target.h"
#include "verify/request.h"

namespace {

using caisson::Result;
using caisson::verify::Check;
using caisson::verify::Mount;
using caisson::verify::Request;
using caisson::verify::SourceFile;

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool HasNul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

// Slashes around the path make every component look alike: "/a/".
std::string Framed(std::string_view path) { return "/" + std::string(path) + "/"; }

void CheckSource(const Request& request) {
  const auto& source = request.source;
  CAISSON_CHECK((source.path ? 1 : 0) + (source.files.empty() ? 0 : 1) + (source.archive ? 1 : 0) == 1);
  CAISSON_CHECK(!source.path || (!source.path->empty() && !HasNul(*source.path)));
  CAISSON_CHECK(!source.archive || source.archive->size() == 71);
  std::set<std::string> names;
  for (const SourceFile& file : source.files) {
    const std::string framed = Framed(file.name);
    CAISSON_CHECK(!HasNul(file.name) && file.name.size() <= 4096);
    CAISSON_CHECK(!Contains(framed, "//") && !Contains(framed, "/./") && !Contains(framed, "/../"));
    CAISSON_CHECK(names.insert(file.name).second);
  }
  for (const SourceFile& file : source.files) {
    for (size_t slash = file.name.find('/'); slash != std::string::npos; slash = file.name.find('/', slash + 1)) {
      CAISSON_CHECK(names.count(file.name.substr(0, slash)) == 0);
    }
  }
}

void CheckChecks(const Request& request) {
  CAISSON_CHECK(request.checks.size() <= caisson::verify::kMaxChecks);
  std::set<std::string> names;
  for (const Check& check : request.checks) {
    CAISSON_CHECK(!check.name.empty() && check.name.size() <= 64 && names.insert(check.name).second);
    CAISSON_CHECK(!check.tier.empty() && !check.argv.empty() && !check.argv[0].empty());
    size_t bytes = 0;
    for (const std::string& argument : check.argv) {
      CAISSON_CHECK(!HasNul(argument));
      bytes += argument.size() + 1;
    }
    for (const auto& [name, value] : check.env) {
      CAISSON_CHECK(!name.empty() && !Contains(name, "=") && !HasNul(name) && !HasNul(value));
      bytes += name.size() + value.size() + 2;
    }
    CAISSON_CHECK(bytes <= caisson::verify::kMaxArgvEnvBytes);
    CAISSON_CHECK(!check.timeout_ms || *check.timeout_ms >= 1);
    CAISSON_CHECK(!Contains(Framed(check.cwd), "/../") && (check.cwd.empty() || check.cwd[0] == '/'));
  }
}

void CheckRest(const Request& request) {
  CAISSON_CHECK(caisson::verify::IsValidRequestId(request.request_id) && request.attempt >= 1);
  const auto& limits = request.limits;
  for (const auto& limit :
       {limits.command_timeout_ms, limits.budget_ms, limits.cpu_millis, limits.memory_bytes, limits.processes,
        limits.output_bytes, limits.scratch_bytes, limits.cpu_time_ms, limits.stack_bytes}) {
    CAISSON_CHECK(!limit || *limit >= 1);
  }
  CAISSON_CHECK(!limits.memory_bytes || *limits.memory_bytes >= caisson::verify::kMinMemoryBytes);
  CAISSON_CHECK(!limits.stack_bytes || *limits.stack_bytes >= caisson::policy::kMinStackBytes);
  CAISSON_CHECK(request.network.allowlist || request.network.allow.empty());
  for (const std::string& entry : request.network.allow) {
    CAISSON_CHECK(!entry.empty() && entry != "*" && std::count(entry.begin(), entry.end(), ':') <= 1);
  }
  for (const Mount& mount : request.mounts) {
    const std::string framed = mount.target + "/";
    CAISSON_CHECK(mount.source[0] == '/' && mount.target[0] == '/' && mount.target.size() > 1);
    CAISSON_CHECK(!Contains(framed, "//") && !Contains(framed, "/./") && !Contains(framed, "/../"));
    for (const char* system : {"/proc/", "/dev/", "/sys/", "/usr/", "/etc/"}) {
      CAISSON_CHECK(framed.rfind(system, 0) != 0);
    }
  }
  for (const std::string& glob : request.artifacts) {
    CAISSON_CHECK(glob.rfind("/scratch/", 0) == 0 || glob.rfind("/workspace/", 0) == 0);
    CAISSON_CHECK(!Contains(glob + "/", "/../"));
  }
  CAISSON_CHECK(request.priority >= -100 && request.priority <= 100 && request.labels.size() <= 64);
}

}  // namespace

CAISSON_FUZZ_TARGET(request) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const Result<Request> request = caisson::verify::ParseRequest(text);
  if (!request) {
    CheckFault(request.error());
    return 0;
  }
  CheckSource(*request);
  CheckChecks(*request);
  CheckRest(*request);
  return 0;
}
