#include "attest/statement.h"

#include <nlohmann/json.hpp>

#include "verify/digest.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"
#include "verify/result_reader.h"

namespace caisson::attest {
namespace {

using nlohmann::json;
using namespace verify;  // its readers: every second word below

constexpr size_t kMaxHostCharacters = 128;  // uname(2) gives at most 64 bytes

// The verdict without the circumstances of the run: no times, no process ids, no output.
constexpr const char* kVerdictMembers[] = {"status", "failure_class", "terminal_event", "tier", "exit_code"};

// nlohmann::json keeps members sorted by the bytes of their names.
std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json NullIfEmpty(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

Result<std::string> ReadFailureClass(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ReadChoice(value, path,
                              {"TimeoutViolation", "MemoryLimitViolation", "ProcessLimitViolation",
                               "OutputLimitViolation", "NetworkAccessViolation", "FilesystemWriteViolation",
                               "SyscallViolation", "CheckFailed", "PolicyRejected", "InfrastructureError"}));
  return ReadString(value, path);
}

Result<VerdictStatus> ReadStatus(const json& value, const std::string& path) {
  CAISSON_TRY(const size_t index, ReadChoice(value, path, {"pass", "fail", "error", "rejected", "cancelled"}));
  return static_cast<VerdictStatus>(index);
}

Status ExpectConstant(const json& value, const std::string& path, const char* name, std::string_view constant) {
  CAISSON_TRY_VOID(ReadRequired(value, path, name, ReadChoice, std::initializer_list<std::string_view>{constant}));
  return {};
}

// The member must be there; null leaves the field empty.
template <typename Read, typename... Arguments>
Result<std::string> ReadNullable(const json& object, const std::string& path, const char* name, Read read,
                                 Arguments... arguments) {
  CAISSON_TRY(const json* member, RequireMember(object, path, name));
  if (member->is_null()) return std::string();
  return read(*member, PathOfMember(path, name), arguments...);
}

bool AgreesWithClass(VerdictStatus status, const std::string& failure_class) {
  switch (status) {
    case VerdictStatus::kPass:
      return failure_class.empty();
    case VerdictStatus::kFail:
      return !failure_class.empty() && failure_class != "PolicyRejected" && failure_class != "InfrastructureError";
    case VerdictStatus::kError:
      return failure_class == "InfrastructureError";
    case VerdictStatus::kRejected:
      return failure_class == "PolicyRejected";
    case VerdictStatus::kCancelled:
      return true;
  }
  return false;
}

Result<Digests> ReadDigests(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"source", "policy", "image", "isolation", "verdict", "result"}));
  Digests digests;
  CAISSON_TRY(digests.source, ReadNullable(value, path, "source", ReadSha256));
  CAISSON_TRY(digests.policy, ReadNullable(value, path, "policy", ReadSha256));
  CAISSON_TRY_VOID(ReadOptional(value, path, "image", digests.image, ReadSha256));
  CAISSON_TRY(digests.isolation, ReadNullable(value, path, "isolation", ReadSha256));
  CAISSON_TRY(digests.verdict, ReadRequired(value, path, "verdict", ReadSha256));
  CAISSON_TRY(digests.result, ReadRequired(value, path, "result", ReadSha256));
  return digests;
}

Status ReadHost(const json& value, const std::string& path, Statement& statement) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"caisson_version", "kernel"}));
  CAISSON_TRY(statement.caisson_version,
              ReadRequired(value, path, "caisson_version", ReadSentence, kMaxHostCharacters));
  CAISSON_TRY(statement.kernel, ReadRequired(value, path, "kernel", ReadSentence, kMaxHostCharacters));
  return {};
}

Result<Statement> ReadPredicate(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(
      value, path, {"request_id", "job_id", "attempt", "status", "failure_class", "tier", "time", "digests", "host"}));
  Statement statement;
  CAISSON_TRY(statement.request_id, ReadRequired(value, path, "request_id", ReadWord, "._-", 128));
  CAISSON_TRY_VOID(ReadOptional(value, path, "job_id", statement.job_id, ReadWord, "._-", 128));
  CAISSON_TRY(statement.attempt, ReadRequired(value, path, "attempt", ReadInteger, 1, kMaxAttempt));
  CAISSON_TRY(statement.status, ReadRequired(value, path, "status", ReadStatus));
  CAISSON_TRY(statement.failure_class, ReadNullable(value, path, "failure_class", ReadFailureClass));
  if (!AgreesWithClass(statement.status, statement.failure_class)) {
    return FieldError(PathOfMember(path, "failure_class"),
                      "contradicts the status " + std::string(StatusName(statement.status)));
  }
  CAISSON_TRY(statement.tier, ReadNullable(value, path, "tier", ReadWord, "._-", size_t{64}));
  CAISSON_TRY(statement.time, ReadRequired(value, path, "time", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(statement.digests, ReadRequired(value, path, "digests", ReadDigests));
  CAISSON_TRY(const json* host, RequireMember(value, path, "host"));
  CAISSON_TRY_VOID(ReadHost(*host, PathOfMember(path, "host"), statement));
  return statement;
}

// Without a source, the subject is the result document itself.
json SubjectOf(const Digests& digests) {
  const bool has_source = !digests.source.empty();
  return {{"name", has_source ? "source" : "result"},
          {"digest", {{"sha256", has_source ? digests.source : digests.result}}}};
}

Status ExpectSubject(const json& value, const std::string& path, const Digests& digests) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 1, 1));
  const std::string element = PathOfElement(path, 0);
  CAISSON_TRY_VOID(ExpectObject(value[0], element, {"name", "digest"}));
  CAISSON_TRY_VOID(
      ReadRequired(value[0], element, "name", ReadChoice, std::initializer_list<std::string_view>{"source", "result"}));
  CAISSON_TRY(const json* digest, RequireMember(value[0], element, "digest"));
  const std::string digest_path = PathOfMember(element, "digest");
  CAISSON_TRY_VOID(ExpectObject(*digest, digest_path, {"sha256"}));
  CAISSON_TRY_VOID(ReadRequired(*digest, digest_path, "sha256", ReadSha256));
  if (value[0] == SubjectOf(digests)) return {};
  return FieldError(element, "is not what predicate.digests says it is");
}

// "sha256:…" or bare, as the result has it.
std::string BareDigest(const json& result, const char* name) {
  const json* member = FindMember(result, name);
  if (member == nullptr || member->is_null()) return "";
  const std::string& text = member->get_ref<const std::string&>();
  return text.substr(text.find(':') + 1);  // npos + 1 is 0
}

std::string TextOrEmpty(const json& value) { return value.is_null() ? std::string() : value.get<std::string>(); }

}  // namespace

Result<Statement> StatementOf(std::string_view result, const std::string& job_id, const std::string& time) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxResultBytes;
  CAISSON_TRY(const json document, ReadJson(result, bounds));
  CAISSON_TRY_VOID(ExpectResult(document, ""));
  CAISSON_TRY(const json* host, RequireMember(document, "", "host"));
  Statement statement;
  statement.request_id = document.at("request_id");
  statement.job_id = job_id;
  CAISSON_TRY(statement.attempt, ReadRequired(document, "", "attempt", ReadInteger, 1, kMaxAttempt));
  CAISSON_TRY(statement.status, ReadRequired(document, "", "status", ReadStatus));
  statement.failure_class = TextOrEmpty(document.at("failure_class"));
  statement.tier = TextOrEmpty(document.at("tier"));
  statement.time = time;
  statement.digests.source = BareDigest(document, "source_digest");
  statement.digests.policy = BareDigest(document, "policy_digest");
  if (const json* image = FindMember(document, "image")) statement.digests.image = BareDigest(*image, "digest");
  if (const json* isolation = FindMember(document, "isolation")) {
    statement.digests.isolation = Sha256Hex(Dump(*isolation));
  }
  json verdict = json::object();
  for (const char* name : kVerdictMembers) verdict[name] = document.at(name);
  statement.digests.verdict = Sha256Hex(Dump(verdict));
  statement.digests.result = Sha256Hex(result);
  statement.caisson_version = host->at("caisson_version");
  statement.kernel = host->at("kernel");
  // A result may hold texts that a statement may not. Check first, so that every signed statement is accepted later.
  return ParseStatement(Canonical(statement));
}

std::string Canonical(const Statement& statement) {
  const Digests& digests = statement.digests;
  json predicate = {{"request_id", statement.request_id},
                    {"attempt", statement.attempt},
                    {"status", StatusName(statement.status)},
                    {"failure_class", NullIfEmpty(statement.failure_class)},
                    {"tier", NullIfEmpty(statement.tier)},
                    {"time", statement.time},
                    {"digests",
                     {{"source", NullIfEmpty(digests.source)},
                      {"policy", NullIfEmpty(digests.policy)},
                      {"isolation", NullIfEmpty(digests.isolation)},
                      {"verdict", digests.verdict},
                      {"result", digests.result}}},
                    {"host", {{"caisson_version", statement.caisson_version}, {"kernel", statement.kernel}}}};
  if (!digests.image.empty()) predicate["digests"]["image"] = digests.image;
  if (!statement.job_id.empty()) predicate["job_id"] = statement.job_id;
  json document = {{"_type", kStatementType}, {"predicateType", kPredicateType}, {"predicate", std::move(predicate)}};
  document["subject"].push_back(SubjectOf(digests));
  return Dump(document);
}

Result<Statement> ParseStatement(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxStatementBytes;
  CAISSON_TRY(const json root, ReadJson(text, bounds));
  if (!root.is_object()) return WrongTypeError("", "an object", root);
  // Checked first: under another type the other members mean something else.
  CAISSON_TRY_VOID(ExpectConstant(root, "", "_type", kStatementType));
  CAISSON_TRY_VOID(ExpectConstant(root, "", "predicateType", kPredicateType));
  CAISSON_TRY_VOID(ExpectObject(root, "", {"_type", "subject", "predicateType", "predicate"}));
  CAISSON_TRY(Statement statement, ReadRequired(root, "", "predicate", ReadPredicate));
  CAISSON_TRY(const json* subject, RequireMember(root, "", "subject"));
  CAISSON_TRY_VOID(ExpectSubject(*subject, "subject", statement.digests));
  return statement;
}

}  // namespace caisson::attest
