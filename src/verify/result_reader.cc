#include "verify/result_reader.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr size_t kAnyCount = std::numeric_limits<size_t>::max();

Status ExpectString(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadString(value, path));
  return {};
}

Status ExpectNonEmpty(const json& value, const std::string& path) {
  CAISSON_TRY(const std::string text, ReadString(value, path));
  if (text.empty()) return FieldError(path, "must not be empty");
  return {};
}

Status ExpectBoolean(const json& value, const std::string& path) {
  if (!value.is_boolean()) return WrongTypeError(path, "a boolean", value);
  return {};
}

Status ExpectNumber(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadNumber(value, path));
  return {};
}

Status ExpectCount(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadInteger(value, path, 0, kAnyInteger));
  return {};
}

Status ExpectPositive(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadInteger(value, path, 1, kAnyInteger));
  return {};
}

Status ExpectExitCode(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadInteger(value, path, 0, 255));
  return {};
}

Status ExpectSha256(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadSha256(value, path));
  return {};
}

Status ExpectDigest(const json& value, const std::string& path) {
  constexpr std::string_view kScheme = "sha256:";
  CAISSON_TRY(const std::string digest, ReadString(value, path));
  const bool has_scheme = digest.compare(0, kScheme.size(), kScheme) == 0;
  return ExpectSha256(has_scheme ? json(digest.substr(kScheme.size())) : value, path);
}

using ParkedSetup = Status (*)(const json&, const std::string&);

template <ParkedSetup expectation>
Status OrNull(const json& value, const std::string& path) {
  if (value.is_null()) return {};
  return expectation(value, path);
}

template <ParkedSetup expectation, size_t min_elements = 0>
Status ListOf(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, min_elements, kAnyCount));
  for (size_t i = 0; i < value.size(); ++i) CAISSON_TRY_VOID(expectation(value[i], PathOfElement(path, i)));
  return {};
}

struct Member {
  const char* name;
  ParkedSetup expectation;
  enum { kRequired, kOptional } presence = kRequired;
};

// Ignores members that are not listed.
Status ExpectMembers(const json& value, const std::string& path, std::initializer_list<Member> members) {
  CAISSON_TRY_VOID(ExpectMap(value, path, kAnyCount));
  for (const Member& member : members) {
    const json* found = FindMember(value, member.name);
    if (found == nullptr && member.presence == Member::kOptional) continue;
    CAISSON_TRY_VOID(RequireMember(value, path, member.name));
    CAISSON_TRY_VOID(member.expectation(*found, PathOfMember(path, member.name)));
  }
  return {};
}

Status ExpectArtifact(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"path", "bytes", "sha256", "ref"}));
  return ExpectMembers(
      value, path, {{"path", ExpectNonEmpty}, {"bytes", ExpectCount}, {"sha256", ExpectSha256}, {"ref", ExpectString}});
}

Status ExpectSkippedCheck(const json& value, const std::string& path) {
  return ExpectMembers(
      value, path,
      {{"name", ExpectString}, {"tier", OrNull<ExpectString>, Member::kOptional}, {"reason", ExpectNonEmpty}});
}

Status ExpectUsage(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectMembers(value, path,
                                 {{"cpu_ms", ExpectCount, Member::kOptional},
                                  {"peak_memory_bytes", ExpectCount, Member::kOptional},
                                  {"processes_peak", ExpectCount, Member::kOptional},
                                  {"output_bytes", ExpectCount},
                                  {"scratch_bytes", ExpectCount, Member::kOptional},
                                  {"throttled_ms", ExpectCount, Member::kOptional},
                                  {"supervisor_cpu_ms", ExpectCount, Member::kOptional}}));
  for (const auto& member : value.items()) {
    CAISSON_TRY_VOID(ExpectNumber(member.value(), PathOfMember(path, member.key())));
  }
  return {};
}

Status ExpectCheck(const json& value, const std::string& path) {
  return ExpectMembers(value, path,
                       {{"name", ExpectString},
                        {"tier", ExpectString},
                        {"argv", ListOf<ExpectString, 1>},
                        {"exit_code", OrNull<ExpectExitCode>},
                        {"signal", OrNull<ExpectCount>},
                        {"duration_ms", ExpectCount},
                        {"usage", ExpectUsage}});
}

Status ExpectViolationClass(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(
      ReadChoice(value, path,
                 {"TimeoutViolation", "MemoryLimitViolation", "ProcessLimitViolation", "OutputLimitViolation",
                  "NetworkAccessViolation", "FilesystemWriteViolation", "SyscallViolation"}));
  return {};
}

Status ExpectConfidence(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadChoice(value, path, {"proven", "observed"}));
  return {};
}

Status ExpectEvidence(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectMap(value, path, kAnyCount));
  for (const auto& member : value.items()) {
    if (member.value().is_string()) continue;
    CAISSON_TRY_VOID(ReadInteger(member.value(), PathOfMember(path, member.key()), std::numeric_limits<int64_t>::min(),
                                 kAnyInteger));
  }
  return {};
}

Status ExpectViolation(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(
      value, path,
      {"class", "reason", "confidence", "time_ms", "pid", "evidence", "count", "limit", "suggestion", "check"}));
  return ExpectMembers(value, path,
                       {{"class", ExpectViolationClass},
                        {"reason", ExpectNonEmpty},
                        {"confidence", ExpectConfidence},
                        {"time_ms", ExpectCount},
                        {"pid", OrNull<ExpectCount>},
                        {"evidence", ExpectEvidence},
                        {"count", ExpectPositive, Member::kOptional},
                        {"limit", ExpectCount, Member::kOptional},
                        {"suggestion", ExpectString, Member::kOptional},
                        {"check", ExpectString, Member::kOptional}});
}

Status ExpectOnce(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadInteger(value, path, 1, kAnyInteger));
  return {};
}

Status ExpectNotice(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"probe", "why", "count", "time_ms", "pid", "evidence", "check"}));
  return ExpectMembers(value, path,
                       {{"probe", ExpectNonEmpty},
                        {"why", ExpectNonEmpty},
                        {"count", ExpectOnce},
                        {"time_ms", ExpectCount},
                        {"pid", OrNull<ExpectCount>},
                        {"evidence", ExpectEvidence},
                        {"check", ExpectString, Member::kOptional}});
}

Status ExpectOutput(const json& value, const std::string& path) {
  return ExpectMembers(value, path, {{"truncated", ExpectBoolean}, {"bytes_total", ExpectCount}});
}

Status ExpectSeccomp(const json& value, const std::string& path) {
  return ExpectMembers(value, path, {{"profile", ExpectString}, {"sha256", ExpectSha256}});
}

Status ExpectCgroup(const json& value, const std::string& path) {
  return ExpectMembers(value, path, {{"driver", ExpectString}});
}

Status ExpectDegraded(const json& value, const std::string& path) {
  if (value.is_string() || value.is_object()) return {};
  return WrongTypeError(path, "a string or an object", value);
}

Status ExpectWallState(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadChoice(value, path, {"enforced", "watched", "absent", "not_applicable"}));
  return {};
}

Status ExpectWall(const json& value, const std::string& path) {
  return ExpectMembers(value, path, {{"wall", ExpectNonEmpty}, {"state", ExpectWallState}, {"evidence", ExpectString}});
}

Status ExpectIsolation(const json& value, const std::string& path) {
  return ExpectMembers(value, path,
                       {{"runtime", ExpectString},
                        {"namespaces", ListOf<ExpectString>, Member::kOptional},
                        {"seccomp", OrNull<ExpectSeccomp>, Member::kOptional},
                        {"landlock_abi", OrNull<ExpectCount>, Member::kOptional},
                        {"cgroup", OrNull<ExpectCgroup>, Member::kOptional},
                        {"degraded", ListOf<ExpectDegraded>},
                        {"walls", ListOf<ExpectWall>, Member::kOptional},
                        {"cannot_observe", ListOf<ExpectViolationClass>, Member::kOptional}});
}

Status ExpectHost(const json& value, const std::string& path) {
  return ExpectMembers(value, path, {{"kernel", ExpectString}, {"caisson_version", ExpectString}});
}

Status ExpectFirstVersion(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadInteger(value, path, 1, 1));
  return {};
}

Status ExpectPort(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadInteger(value, path, 0, 65535));
  return {};
}

Status ExpectNetworkDecision(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadChoice(value, path, {"allowed", "denied"}));
  return {};
}

Status ExpectNetworkUse(const json& value, const std::string& path) {
  return ExpectMembers(value, path,
                       {{"name", ExpectString},
                        {"port", ExpectPort},
                        {"protocol", ExpectString},
                        {"address", ExpectString},
                        {"rule", ExpectString},
                        {"decision", ExpectNetworkDecision},
                        {"reason", ExpectString, Member::kOptional},
                        {"bytes_in", ExpectCount},
                        {"bytes_out", ExpectCount},
                        {"connections", ExpectCount},
                        {"check", ExpectString, Member::kOptional}});
}

Status ExpectRequestId(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadWord(value, path, "._-", 128));
  return {};
}

Status ExpectAttempt(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadInteger(value, path, 1, kAnyInteger));
  return {};
}

Status ExpectMode(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadChoice(value, path, {"balanced", "strict"}));
  return {};
}

Status ExpectImage(const json& value, const std::string& path) {
  return ExpectMembers(value, path, {{"name", ExpectString}, {"digest", OrNull<ExpectDigest>}});
}

// Status, class and terminal event must be consistent.
Status ExpectVerdict(const json& value, const std::string& path) {
  enum : size_t { kPass, kFail, kError, kRejected, kCancelled };
  CAISSON_TRY(const size_t status,
              ReadRequired(value, path, "status", ReadChoice,
                           std::initializer_list<std::string_view>{"pass", "fail", "error", "rejected", "cancelled"}));
  CAISSON_TRY(const json* class_member, RequireMember(value, path, "failure_class"));
  const std::string class_path = PathOfMember(path, "failure_class");
  std::string failure_class;
  if (!class_member->is_null()) {
    CAISSON_TRY(failure_class, ReadString(*class_member, class_path));
    if (failure_class != "CheckFailed" && failure_class != "PolicyRejected" && failure_class != "InfrastructureError") {
      CAISSON_TRY_VOID(ExpectViolationClass(*class_member, class_path));
    }
  }
  CAISSON_TRY(const size_t event,
              ReadRequired(value, path, "terminal_event", ReadChoice,
                           std::initializer_list<std::string_view>{
                               "completed", "rejected", "cancelled", "error", "check_failed", "timeout", "memory_limit",
                               "process_limit", "output_limit", "network_denied", "write_denied", "syscall_denied"}));
  enum : size_t { kCompletedEvent, kRejectedEvent, kCancelledEvent, kErrorEvent };
  bool consistent = true;
  switch (status) {
    case kPass:
      consistent = failure_class.empty() && event == kCompletedEvent;
      break;
    case kFail:
      consistent = !failure_class.empty() && failure_class != "PolicyRejected" &&
                   failure_class != "InfrastructureError" && event != kCompletedEvent;
      break;
    case kError:
      consistent = failure_class == "InfrastructureError" && event == kErrorEvent;
      break;
    case kRejected:
      consistent = failure_class == "PolicyRejected" && event == kRejectedEvent;
      break;
    default:
      consistent = event == kCancelledEvent;
  }
  if (!consistent) {
    return FieldError(path, "status, failure_class and terminal_event contradict one another");
  }
  return {};
}

}  // namespace

Status ExpectResult(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectMembers(value, path,
                                 {{"schema_version", ExpectFirstVersion, Member::kOptional},
                                  {"request_id", ExpectRequestId},
                                  {"attempt", ExpectAttempt},
                                  {"mode", ExpectMode},
                                  {"tier", OrNull<ExpectString>},
                                  {"exit_code", OrNull<ExpectExitCode>},
                                  {"duration_ms", ExpectCount},
                                  {"stdout", ExpectString},
                                  {"stderr", ExpectString},
                                  {"artifacts", ListOf<ExpectArtifact>},
                                  {"skipped_checks", ListOf<ExpectSkippedCheck>},
                                  {"checks", ListOf<ExpectCheck>, Member::kOptional},
                                  {"violations", ListOf<ExpectViolation>, Member::kOptional},
                                  {"notices", ListOf<ExpectNotice>, Member::kOptional},
                                  {"network", ListOf<ExpectNetworkUse>, Member::kOptional},
                                  {"usage", ExpectUsage, Member::kOptional},
                                  {"output", ExpectOutput, Member::kOptional},
                                  {"isolation", ExpectIsolation, Member::kOptional},
                                  {"image", ExpectImage, Member::kOptional},
                                  {"policy_digest", OrNull<ExpectDigest>, Member::kOptional},
                                  {"source_digest", OrNull<ExpectDigest>, Member::kOptional},
                                  {"host", ExpectHost, Member::kOptional}}));
  return ExpectVerdict(value, path);
}

}  // namespace caisson::verify
