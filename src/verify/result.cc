#include "verify/result.h"

#include <sys/utsname.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "base/version.h"

namespace caisson::verify {

using nlohmann::json;

namespace {

json NullIfEmpty(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json ToJson(const CheckRecord& check) {
  const CommandOutcome& outcome = check.outcome;
  json argv = json::array();
  for (const std::string& argument : check.argv) argv.push_back(ReplaceInvalidUtf8(argument));
  return {{"name", check.name},
          {"tier", check.tier},
          {"argv", std::move(argv)},
          {"exit_code", outcome.exit_code},
          {"signal", outcome.signal == 0 ? json(nullptr) : json(outcome.signal)},
          {"duration_ms", outcome.duration_ms},
          {"left_processes", outcome.left_processes},
          {"usage", caisson::verify::ToJson(outcome.usage)}};
}

Usage TotalUsage(const std::vector<CheckRecord>& checks) {
  Usage total;
  const auto add = [](std::optional<int64_t>& sum, const std::optional<int64_t>& more) {
    if (more) sum = sum.value_or(0) + *more;
  };
  for (const CheckRecord& check : checks) {
    const Usage& usage = check.outcome.usage;
    add(total.cpu_ms, usage.cpu_ms);
    add(total.throttled_ms, usage.throttled_ms);
    total.output_bytes += usage.output_bytes;
    add(total.supervisor_cpu_ms, usage.supervisor_cpu_ms);
    // An absent std::optional is less than any value. A check lacks a peak only where an earlier check reached as much.
    total.peak_memory_bytes = std::max(total.peak_memory_bytes, usage.peak_memory_bytes);
    total.processes_peak = std::max(total.processes_peak, usage.processes_peak);
    total.scratch_bytes = std::max(total.scratch_bytes, usage.scratch_bytes);
  }
  return total;
}

json EvidenceJson(const std::vector<std::pair<std::string, EvidenceValue>>& evidence) {
  json document = json::object();
  for (const auto& [key, value] : evidence) {
    if (const auto* number = std::get_if<int64_t>(&value))
      document[key] = *number;
    else
      document[key] = ReplaceInvalidUtf8(std::get<std::string>(value));
  }
  return document;
}

std::string KernelRelease() {
  struct utsname name {};
  ::uname(&name);
  return name.release;
}

}  // namespace

const char* StatusName(VerdictStatus status) {
  switch (status) {
    case VerdictStatus::kPass:
      return "pass";
    case VerdictStatus::kFail:
      return "fail";
    case VerdictStatus::kError:
      return "error";
    case VerdictStatus::kRejected:
      return "rejected";
    case VerdictStatus::kCancelled:
      return "cancelled";
  }
  return "error";
}

const char* ModeName(Mode mode) { return mode == Mode::kStrict ? "strict" : "balanced"; }

json ToJson(const Notice& notice) {
  return {{"probe", notice.probe},     {"why", notice.why}, {"count", notice.count},
          {"time_ms", notice.time_ms}, {"pid", notice.pid}, {"evidence", EvidenceJson(notice.evidence)}};
}

json ToJson(const Violation& violation) {
  json document = {{"class", ClassName(violation.violation_class)},
                   {"reason", violation.reason},
                   {"confidence", violation.confidence == Confidence::kProven ? "proven" : "observed"},
                   {"time_ms", violation.time_ms},
                   {"pid", violation.pid},
                   {"count", violation.count},
                   {"evidence", EvidenceJson(violation.evidence)}};
  document["evidence"]["source"] = violation.source == EvidenceSource::kOutside ? "outside" : "inside";
  if (violation.limit >= 0) document["limit"] = violation.limit;
  if (!violation.suggestion.empty()) document["suggestion"] = violation.suggestion;
  return document;
}

json ToJson(const NetworkUse& use) {
  return {{"name", ReplaceInvalidUtf8(use.name)},
          {"port", use.port},
          {"protocol", ReplaceInvalidUtf8(use.protocol)},
          {"address", ReplaceInvalidUtf8(use.address)},
          {"rule", ReplaceInvalidUtf8(use.rule)},
          {"decision", use.allowed ? "allowed" : "denied"},
          {"reason", ReplaceInvalidUtf8(use.reason)},
          {"bytes_in", use.bytes_in},
          {"bytes_out", use.bytes_out},
          {"connections", use.connections}};
}

json ToJson(const Usage& usage) {
  json document = {{"output_bytes", usage.output_bytes}};
  const std::pair<const char*, std::optional<int64_t>> measured[] = {{"cpu_ms", usage.cpu_ms},
                                                                     {"throttled_ms", usage.throttled_ms},
                                                                     {"peak_memory_bytes", usage.peak_memory_bytes},
                                                                     {"processes_peak", usage.processes_peak},
                                                                     {"scratch_bytes", usage.scratch_bytes},
                                                                     {"supervisor_cpu_ms", usage.supervisor_cpu_ms}};
  for (const auto& [name, value] : measured) {
    if (value) document[name] = *value;
  }
  return document;
}

json ToJson(const runtime::IsolationReport& isolation) {
  json walls = json::array();
  for (const runtime::Wall& wall : isolation.walls)
    walls.push_back({{"wall", wall.name}, {"state", NameOf(wall.state)}, {"evidence", wall.evidence}});
  return {{"runtime", isolation.runtime},
          {"namespaces", isolation.namespaces},
          {"seccomp", {{"profile", isolation.seccomp_profile}, {"sha256", isolation.seccomp_sha256}}},
          {"landlock_abi", isolation.landlock_abi},
          {"cgroup", {{"driver", isolation.cgroup_driver}}},
          {"no_new_privs", isolation.no_new_privileges},
          {"capabilities", isolation.capabilities},
          {"host_uid", isolation.host_uid},
          {"start", isolation.start},
          {"degraded", isolation.degraded},
          {"walls", std::move(walls)},
          {"cannot_observe", isolation.cannot_observe}};
}

OutputText OutputOf(const VerificationResult& result, CapturedStream CommandOutcome::*stream) {
  std::vector<const CapturedStream*> streams;
  for (const CheckRecord& check : result.checks) streams.push_back(&(check.outcome.*stream));
  return OutputText(std::move(streams));
}

// The document without the output. (Not in the unnamed namespace, whose ToJson would hide the others.)
static json WithoutOutput(const VerificationResult& result) {
  json checks = json::array(), violations = json::array(), notices = json::array(), network = json::array(),
       artifacts = json::array(), skipped = json::array();
  uint64_t total_bytes = 0;
  bool truncated = false;
  for (const CheckRecord& check : result.checks) {
    checks.push_back(ToJson(check));
    std::vector<Violation> in_time = check.outcome.violations;
    std::stable_sort(in_time.begin(), in_time.end(),
                     [](const Violation& a, const Violation& b) { return a.time_ms < b.time_ms; });
    for (const Violation& violation : in_time) {
      violations.push_back(ToJson(violation));
      violations.back()["check"] = check.name;
    }
    for (const Notice& notice : check.outcome.notices) {
      notices.push_back(ToJson(notice));
      notices.back()["check"] = check.name;
    }
    for (const NetworkUse& use : check.outcome.network) {
      network.push_back(ToJson(use));
      network.back()["check"] = check.name;
    }
    truncated = truncated || check.outcome.ending == Ending::kOutputLimit;  // cut off, in either stream
    for (const CapturedStream* stream : {&check.outcome.stdout_stream, &check.outcome.stderr_stream}) {
      total_bytes += stream->total_bytes;
      truncated = truncated || stream->dropped_bytes > 0;
    }
  }
  for (const Artifact& artifact : result.artifacts) {
    artifacts.push_back({{"path", ReplaceInvalidUtf8(artifact.path)},
                         {"bytes", artifact.bytes},
                         {"sha256", artifact.sha256},
                         {"ref", artifact.ref}});
  }
  for (const SkippedCheck& check : result.skipped_checks) {
    skipped.push_back({{"name", check.name}, {"tier", NullIfEmpty(check.tier)}, {"reason", check.reason}});
  }
  const bool ran = !result.checks.empty();
  json document = {
      {"schema_version", 1},
      {"request_id", result.request_id},
      {"attempt", result.attempt},
      {"mode", ModeName(result.mode)},
      {"status", StatusName(result.verdict.status)},
      {"tier", ran ? json(result.checks.back().tier) : json(nullptr)},
      {"failure_class", NullIfEmpty(result.verdict.failure_class)},
      {"exit_code", ran ? json(result.checks.back().outcome.exit_code) : json(nullptr)},
      {"duration_ms", result.duration_ms},
      {"artifacts", std::move(artifacts)},
      {"skipped_checks", std::move(skipped)},
      {"terminal_event", result.verdict.terminal_event},
      {"checks", std::move(checks)},
      {"violations", std::move(violations)},
      {"notices", std::move(notices)},
      {"usage", ToJson(TotalUsage(result.checks))},
      {"output", {{"truncated", truncated}, {"bytes_total", total_bytes}}},
      {"policy_digest", NullIfEmpty(result.policy_digest)},
      {"source_digest", NullIfEmpty(result.source_digest)},
      {"host", {{"kernel", KernelRelease()}, {"caisson_version", kVersion}}},
  };
  if (result.image) document["image"] = result.image->ToJson();
  if (!network.empty()) document["network"] = std::move(network);
  if (!result.policy.is_null()) document["policy"] = result.policy;
  if (!result.decision.is_null()) document["decision"] = result.decision;
  if (result.isolation) document["isolation"] = ToJson(*result.isolation);
  if (!result.message.empty()) document["message"] = ReplaceInvalidUtf8(result.message);
  if (!result.skipped_artifacts.empty()) {
    json reasons = json::array();
    for (const std::string& reason : result.skipped_artifacts) reasons.push_back(ReplaceInvalidUtf8(reason));
    document["skipped_artifacts"] = std::move(reasons);
  }
  return document;
}

namespace {

struct OutputMember {
  const char* name;
  CapturedStream CommandOutcome::*stream;
};
constexpr OutputMember kOutputMembers[] = {{"stdout", &CommandOutcome::stdout_stream},
                                           {"stderr", &CommandOutcome::stderr_stream}};

}  // namespace

json ImageIdentity::ToJson() const { return {{"name", ReplaceInvalidUtf8(name)}, {"digest", NullIfEmpty(digest)}}; }

json ToJson(const VerificationResult& result) {
  json document = WithoutOutput(result);
  for (const OutputMember& member : kOutputMembers) {
    const OutputText output = OutputOf(result, member.stream);
    std::string text, base64;
    const auto into = [](std::string& target) {
      return [&target](std::string_view piece) -> Status {
        target += piece;
        return {};
      };
    };
    static_cast<void>(output.WriteText(into(text)));
    document[member.name] = std::move(text);
    if (!output.is_binary()) continue;
    static_cast<void>(output.WriteBase64(into(base64)));
    document[std::string(member.name) + "_base64"] = std::move(base64);
  }
  return document;
}

Result<int64_t> WriteJson(const VerificationResult& result, const OutputText::Sink& sink) {
  int64_t written = 0;
  const OutputText::Sink count = [&](std::string_view piece) -> Status {
    written += static_cast<int64_t>(piece.size());
    return sink(piece);
  };
  const char* before = "{";
  for (const OutputMember& member : kOutputMembers) {
    const OutputText output = OutputOf(result, member.stream);
    CAISSON_TRY_VOID(count(std::string(before) + "\"" + member.name + "\":\""));
    CAISSON_TRY_VOID(output.WriteJsonText(count));
    if (output.is_binary()) {
      CAISSON_TRY_VOID(count(std::string("\",\"") + member.name + "_base64\":\""));
      CAISSON_TRY_VOID(output.WriteBase64(count));
    }
    before = "\",";
  }
  CAISSON_TRY_VOID(count(before));
  const int64_t rest_at = written;
  const std::string rest = WithoutOutput(result).dump(-1, ' ', true, json::error_handler_t::replace);
  CAISSON_TRY_VOID(count(std::string_view(rest).substr(1)));
  return rest_at;
}

}  // namespace caisson::verify
