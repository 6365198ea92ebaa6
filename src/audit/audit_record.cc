#include "audit/audit_record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::audit {
namespace {

using nlohmann::json;
using namespace verify;  // its readers: every second word below

constexpr size_t kMaxOverrides = 16;  // with the longest reasons they still fit a record

const std::initializer_list<std::string_view> kTypes = {"admit", "reject",      "override", "approval", "cancel",
                                                        "retry", "dead_letter", "result",   "session"};
const std::initializer_list<std::string_view> kDecisions = {"granted", "denied", "expired", "requested"};
const std::initializer_list<std::string_view> kCauses = {"infrastructure_error", "lost_worker"};
const std::initializer_list<std::string_view> kSessionSteps = {"opened",  "stopped",   "apply_begun",
                                                               "applied", "discarded", "removed"};
const std::initializer_list<std::string_view> kStatuses = {"pass", "fail", "error", "rejected", "cancelled"};

std::string NameIn(std::initializer_list<std::string_view> names, size_t index) {
  CAISSON_CHECK(index < names.size());
  return std::string(names.begin()[index]);
}

Result<std::string> ReadReason(const json& value, const std::string& path) {
  return ReadSentence(value, path, kMaxSentenceCharacters);
}

Result<std::string> ReadId(const json& value, const std::string& path) { return ReadWord(value, path, "._-", 128); }
Result<std::string> ReadName(const json& value, const std::string& path) { return ReadWord(value, path, "._-", 64); }

Result<std::string> ReadFailureClass(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadChoice(value, path,
                              {"TimeoutViolation", "MemoryLimitViolation", "ProcessLimitViolation",
                               "OutputLimitViolation", "NetworkAccessViolation", "FilesystemWriteViolation",
                               "SyscallViolation", "CheckFailed", "PolicyRejected", "InfrastructureError"}));
  return ReadString(value, path);
}

Fault FaultInEnd(std::string_view text) {
  if (text == kEndOfTheRun) return std::nullopt;
  return FaultInTimestamp(text);
}

Result<std::vector<GrantedOverride>> ReadOverrides(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 1, kMaxOverrides));
  std::vector<GrantedOverride> overrides;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = PathOfElement(path, i);
    CAISSON_TRY_VOID(ExpectObject(value[i], at, {"id", "kind", "grant", "reason", "expires", "granted_by"}));
    GrantedOverride grant;
    CAISSON_TRY(grant.id, ReadRequired(value[i], at, "id", ReadId));
    CAISSON_TRY(grant.kind, ReadRequired(value[i], at, "kind", ReadName));
    CAISSON_TRY_VOID(ReadOptional(value[i], at, "grant", grant.grant, ReadReason));
    CAISSON_TRY(grant.reason, ReadRequired(value[i], at, "reason", ReadReason));
    CAISSON_TRY(grant.expires, ReadRequired(value[i], at, "expires", ReadText, FaultInEnd));
    CAISSON_TRY(grant.granted_by, ReadRequired(value[i], at, "granted_by", ReadSentence, kMaxSubjectCharacters));
    overrides.push_back(std::move(grant));
  }
  return overrides;
}

Result<Details> ReadAdmit(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"policy_digest", "source_digest", "plan_digest", "overrides"}));
  AdmitRecord admit;
  CAISSON_TRY(admit.policy_digest, ReadRequired(value, path, "policy_digest", ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "source_digest", admit.source_digest, ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "plan_digest", admit.plan_digest, ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "overrides", admit.overrides, ReadOverrides));
  return Details(std::move(admit));
}

Result<Details> ReadReject(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"rule", "reason", "policy_digest", "source_digest"}));
  Reject reject;
  CAISSON_TRY(reject.rule, ReadRequired(value, path, "rule", ReadName));
  CAISSON_TRY(reject.reason, ReadRequired(value, path, "reason", ReadReason));
  CAISSON_TRY_VOID(ReadOptional(value, path, "policy_digest", reject.policy_digest, ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "source_digest", reject.source_digest, ReadSha256));
  return Details(std::move(reject));
}

Result<Details> ReadOverridesGranted(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"overrides", "policy_digest"}));
  OverridesGranted granted;
  CAISSON_TRY(granted.overrides, ReadRequired(value, path, "overrides", ReadOverrides));
  CAISSON_TRY_VOID(ReadOptional(value, path, "policy_digest", granted.policy_digest, ReadSha256));
  return Details(std::move(granted));
}

Result<Details> ReadApprovalStep(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"approval_id", "plan_digest", "decision", "reason"}));
  ApprovalStep step;
  CAISSON_TRY(step.approval_id, ReadRequired(value, path, "approval_id", ReadId));
  CAISSON_TRY(step.plan_digest, ReadRequired(value, path, "plan_digest", ReadSha256));
  CAISSON_TRY(const size_t decision, ReadRequired(value, path, "decision", ReadChoice, kDecisions));
  if (decision + 1 < kDecisions.size()) step.decision = static_cast<Answer>(decision);
  CAISSON_TRY_VOID(ReadOptional(value, path, "reason", step.reason, ReadReason));
  return Details(std::move(step));
}

Result<Details> ReadCancel(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"reason"}));
  Cancel cancel;
  CAISSON_TRY(cancel.reason, ReadRequired(value, path, "reason", ReadReason));
  return Details(std::move(cancel));
}

Result<Details> ReadRetry(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"attempt", "cause", "reason"}));
  Retry retry;
  CAISSON_TRY(retry.attempt, ReadRequired(value, path, "attempt", ReadInteger, 1, kMaxAttempts));
  CAISSON_TRY(const size_t cause, ReadRequired(value, path, "cause", ReadChoice, kCauses));
  retry.cause = static_cast<RetryCause>(cause);
  CAISSON_TRY(retry.reason, ReadRequired(value, path, "reason", ReadReason));
  return Details(std::move(retry));
}

Result<Details> ReadGivenUp(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"attempt", "reason"}));
  GivenUp given_up;
  CAISSON_TRY(given_up.attempt, ReadRequired(value, path, "attempt", ReadInteger, 1, kMaxAttempts));
  CAISSON_TRY(given_up.reason, ReadRequired(value, path, "reason", ReadReason));
  return Details(std::move(given_up));
}

Result<Details> ReadEnded(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(
      ExpectObject(value, path, {"status", "failure_class", "result_digest", "policy_digest", "source_digest"}));
  Ended ended;
  CAISSON_TRY(const size_t status, ReadRequired(value, path, "status", ReadChoice, kStatuses));
  ended.status = static_cast<VerdictStatus>(status);
  CAISSON_TRY_VOID(ReadOptional(value, path, "failure_class", ended.failure_class, ReadFailureClass));
  CAISSON_TRY(ended.result_digest, ReadRequired(value, path, "result_digest", ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "policy_digest", ended.policy_digest, ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "source_digest", ended.source_digest, ReadSha256));
  return Details(std::move(ended));
}

Result<Details> ReadSessionStep(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"step", "reason", "policy_digest", "diff_digest"}));
  SessionStep session;
  CAISSON_TRY(const size_t step, ReadRequired(value, path, "step", ReadChoice, kSessionSteps));
  session.step = static_cast<SessionStep::Step>(step);
  CAISSON_TRY_VOID(ReadOptional(value, path, "reason", session.reason, ReadReason));
  CAISSON_TRY_VOID(ReadOptional(value, path, "policy_digest", session.policy_digest, ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "diff_digest", session.diff_digest, ReadSha256));
  return Details(std::move(session));
}

Result<Details> ReadDetails(const json& value, const std::string& path, size_t type) {
  constexpr std::array kReaders = {ReadAdmit,        ReadReject, ReadOverridesGranted,
                                   ReadApprovalStep, ReadCancel, ReadRetry,
                                   ReadGivenUp,      ReadEnded,  ReadSessionStep};
  static_assert(kReaders.size() == std::variant_size_v<Details>);
  return kReaders[type](value, path);
}

// The reverse of reading; an empty string becomes an absent member.

void Put(json& object, const char* name, const std::string& text) {
  if (!text.empty()) object[name] = text;
}

void Put(json& object, const std::vector<GrantedOverride>& overrides) {
  if (overrides.empty()) return;
  json list = json::array();
  for (const GrantedOverride& grant : overrides) {
    list.push_back({{"id", grant.id},
                    {"kind", grant.kind},
                    {"reason", grant.reason},
                    {"expires", grant.expires},
                    {"granted_by", grant.granted_by}});
    Put(list.back(), "grant", grant.grant);
  }
  object["overrides"] = std::move(list);
}

void Write(json& object, const AdmitRecord& admit) {
  Put(object, "policy_digest", admit.policy_digest);
  Put(object, "source_digest", admit.source_digest);
  Put(object, "plan_digest", admit.plan_digest);
  Put(object, admit.overrides);
}

void Write(json& object, const Reject& reject) {
  Put(object, "rule", reject.rule);
  Put(object, "reason", reject.reason);
  Put(object, "policy_digest", reject.policy_digest);
  Put(object, "source_digest", reject.source_digest);
}

void Write(json& object, const OverridesGranted& granted) {
  Put(object, granted.overrides);
  Put(object, "policy_digest", granted.policy_digest);
}

void Write(json& object, const ApprovalStep& step) {
  Put(object, "approval_id", step.approval_id);
  Put(object, "plan_digest", step.plan_digest);
  Put(object, "decision",
      NameIn(kDecisions, step.decision ? static_cast<size_t>(*step.decision) : kDecisions.size() - 1));
  Put(object, "reason", step.reason);
}

void Write(json& object, const Cancel& cancel) { Put(object, "reason", cancel.reason); }

void Write(json& object, const Retry& retry) {
  object["attempt"] = retry.attempt;
  Put(object, "cause", NameIn(kCauses, static_cast<size_t>(retry.cause)));
  Put(object, "reason", retry.reason);
}

void Write(json& object, const GivenUp& given_up) {
  object["attempt"] = given_up.attempt;
  Put(object, "reason", given_up.reason);
}

void Write(json& object, const Ended& ended) {
  Put(object, "status", NameIn(kStatuses, static_cast<size_t>(ended.status)));
  Put(object, "failure_class", ended.failure_class);
  Put(object, "result_digest", ended.result_digest);
  Put(object, "policy_digest", ended.policy_digest);
  Put(object, "source_digest", ended.source_digest);
}

void Write(json& object, const SessionStep& session) {
  Put(object, "step", NameIn(kSessionSteps, static_cast<size_t>(session.step)));
  Put(object, "reason", session.reason);
  Put(object, "policy_digest", session.policy_digest);
  Put(object, "diff_digest", session.diff_digest);
}

json WithoutHash(const Record& record) {
  json details = json::object();
  std::visit([&](const auto& typed) { Write(details, typed); }, record.entry.details);
  json object = {{"schema_version", 1},
                 {"seq", record.seq},
                 {"time", record.time},
                 {"type", NameIn(kTypes, record.entry.details.index())},
                 {"actor", ToJson(record.entry.actor)},
                 {"details", std::move(details)},
                 {"prev", record.prev}};
  Put(object, "tenant", record.entry.tenant);
  Put(object, "request_id", record.entry.request_id);
  Put(object, "run_id", record.entry.run_id);
  return object;
}

}  // namespace

Result<Record> ParseAuditRecord(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxRecordBytes;
  CAISSON_TRY(const json root, ReadJson(text, bounds));
  CAISSON_TRY_VOID(ExpectSchemaVersion(root, ""));
  CAISSON_TRY_VOID(ExpectObject(
      root, "",
      {"schema_version", "seq", "time", "type", "actor", "tenant", "request_id", "run_id", "details", "prev", "hash"}));
  Record record;
  CAISSON_TRY(record.seq, ReadRequired(root, "", "seq", ReadInteger, 0, kMaxSeq));
  CAISSON_TRY(record.time, ReadRequired(root, "", "time", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(const size_t type, ReadRequired(root, "", "type", ReadChoice, kTypes));
  CAISSON_TRY(record.entry.actor, ReadRequired(root, "", "actor", ReadActor));
  CAISSON_TRY_VOID(ReadOptional(root, "", "tenant", record.entry.tenant, ReadName));
  CAISSON_TRY_VOID(ReadOptional(root, "", "request_id", record.entry.request_id, ReadId));
  CAISSON_TRY_VOID(ReadOptional(root, "", "run_id", record.entry.run_id, ReadId));
  CAISSON_TRY(record.entry.details, ReadRequired(root, "", "details", ReadDetails, type));
  if (!std::holds_alternative<OverridesGranted>(record.entry.details)) {
    CAISSON_TRY_VOID(RequireMember(root, "", "request_id"));
  }
  CAISSON_TRY(record.prev, ReadRequired(root, "", "prev", ReadSha256));
  if ((record.seq == 0) != (record.prev == kNoHash)) {
    return FieldError("prev", "is 64 zeros in the first record, whose seq is 0, and in no other");
  }
  CAISSON_TRY(record.hash, ReadRequired(root, "", "hash", ReadSha256));
  return record;
}

std::string Canonical(const Record& record) {
  json object = WithoutHash(record);
  object["hash"] = record.hash;
  return CanonicalJson(object);
}

std::string HashOf(const Record& record) { return ChainHash(record.prev, WithoutHash(record)); }

Record Chain(Entry entry, const std::optional<Head>& head, std::string time) {
  Record record;
  record.seq = head ? head->seq + 1 : 0;
  record.time = std::move(time);
  record.entry = std::move(entry);
  record.prev = head ? head->hash : kNoHash;
  record.hash = HashOf(record);
  return record;
}

GrantedOverride RecordOf(const policy::Override& grant) {
  return {grant.id,
          policy::KindOf(grant.grant),
          OneLine(policy::Describe(grant.grant)),
          OneLine(grant.reason),
          grant.expires,
          OneLine(grant.granted_by, kMaxSubjectCharacters)};
}

std::string OneLine(std::string_view text, size_t max_characters) {
  std::string line;
  size_t characters = 0;
  for (const char c : ReplaceInvalidUtf8(text)) {
    const bool begins_character = (c & 0xC0) != 0x80;
    if (begins_character && ++characters > max_characters) break;
    line += (c >= 0 && c < 0x20) || c == 0x7F ? ' ' : c;
  }
  return line.empty() ? "none given" : line;
}

}  // namespace caisson::audit
