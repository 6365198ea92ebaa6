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
  for (const CheckRecord& check : checks) {
    const Usage& usage = check.outcome.usage;
    total.cpu_ms += usage.cpu_ms;
    total.throttled_ms += usage.throttled_ms;
    total.output_bytes += usage.output_bytes;
    total.peak_memory_bytes = std::max(total.peak_memory_bytes, usage.peak_memory_bytes);
    total.processes_peak = std::max(total.processes_peak, usage.processes_peak);
    total.scratch_bytes = std::max(total.scratch_bytes, usage.scratch_bytes);
  }
  return total;
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

std::string StreamText(const CapturedStream& stream) {
  std::string text = stream.head;
  if (stream.dropped_bytes > 0) text += "\n[" + std::to_string(stream.dropped_bytes) + " bytes left out]\n";
  return ReplaceInvalidUtf8(text + stream.tail);
}

json ToJson(const Violation& violation) {
  json evidence = json::object();
  for (const auto& [key, value] : violation.evidence) {
    if (const auto* number = std::get_if<int64_t>(&value))
      evidence[key] = *number;
    else
      evidence[key] = ReplaceInvalidUtf8(std::get<std::string>(value));
  }
  json document = {{"class", ClassName(violation.violation_class)},
                   {"reason", violation.reason},
                   {"confidence", violation.confidence == Confidence::kProven ? "proven" : "observed"},
                   {"time_ms", violation.time_ms},
                   {"pid", violation.pid},
                   {"evidence", std::move(evidence)}};
  if (violation.limit >= 0) document["limit"] = violation.limit;
  if (!violation.suggestion.empty()) document["suggestion"] = violation.suggestion;
  return document;
}

json ToJson(const Usage& usage) {
  return {{"cpu_ms", usage.cpu_ms},
          {"throttled_ms", usage.throttled_ms},
          {"peak_memory_bytes", usage.peak_memory_bytes},
          {"processes_peak", usage.processes_peak},
          {"output_bytes", usage.output_bytes},
          {"scratch_bytes", usage.scratch_bytes}};
}

json ToJson(const runtime::IsolationReport& isolation) {
  return {{"runtime", isolation.runtime},
          {"namespaces", isolation.namespaces},
          {"seccomp", {{"profile", isolation.seccomp_profile}, {"sha256", isolation.seccomp_sha256}}},
          {"landlock_abi", isolation.landlock_abi},
          {"cgroup", {{"driver", isolation.cgroup_driver}}},
          {"no_new_privs", true},
          {"capabilities", json::array()},
          {"host_uid", isolation.host_uid},
          {"start", isolation.start},
          {"degraded", isolation.degraded}};
}

json ToJson(const VerificationResult& result) {
  json checks = json::array(), violations = json::array(), artifacts = json::array(), skipped = json::array();
  std::string stdout_text, stderr_text;
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
    truncated = truncated || check.outcome.ending == Ending::kOutputLimit;  // cut off, wherever it was cut
    stdout_text += StreamText(check.outcome.stdout_stream);
    stderr_text += StreamText(check.outcome.stderr_stream);
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
      {"stdout", std::move(stdout_text)},
      {"stderr", std::move(stderr_text)},
      {"artifacts", std::move(artifacts)},
      {"skipped_checks", std::move(skipped)},
      {"terminal_event", result.verdict.terminal_event},
      {"checks", std::move(checks)},
      {"violations", std::move(violations)},
      {"usage", ToJson(TotalUsage(result.checks))},
      {"output", {{"truncated", truncated}, {"bytes_total", total_bytes}}},
      {"policy_digest", NullIfEmpty(result.policy_digest)},
      {"source_digest", NullIfEmpty(result.source_digest)},
      {"host", {{"kernel", KernelRelease()}, {"caisson_version", kVersion}}},
  };
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

}  // namespace caisson::verify
