#include "session/session_statement.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "attest/statement.h"
#include "audit/audit_record.h"
#include "base/clock.h"
#include "verify/digest.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::session {
namespace {

using nlohmann::json;
using namespace verify;  // its readers: every second word below

constexpr size_t kMaxProjectCharacters = 1024;
constexpr size_t kMaxHostCharacters = 128;
const std::initializer_list<std::string_view> kStates = {"stopped", "applied", "discarded", "failed", "lost"};

json NullIfEmpty(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

// The member must be there; null leaves the field empty.
Result<std::string> ReadDigestOrNull(const json& object, const std::string& path, const char* name) {
  CAISSON_TRY(const json* member, RequireMember(object, path, name));
  if (member->is_null()) return std::string();
  return ReadSha256(*member, PathOfMember(path, name));
}

Status ReadDigests(const json& value, const std::string& path, SessionStatement& statement) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"policy", "isolation", "diff"}));
  CAISSON_TRY(statement.policy_digest, ReadRequired(value, path, "policy", ReadSha256));
  CAISSON_TRY(statement.isolation_digest, ReadRequired(value, path, "isolation", ReadSha256));
  CAISSON_TRY(statement.diff_digest, ReadDigestOrNull(value, path, "diff"));
  return {};
}

Result<audit::Head> ReadHead(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"seq", "hash"}));
  audit::Head head;
  CAISSON_TRY(head.seq, ReadRequired(value, path, "seq", ReadInteger, 0, audit::kMaxSeq));
  CAISSON_TRY(head.hash, ReadRequired(value, path, "hash", ReadSha256));
  return head;
}

Result<TranscriptDigest> ReadTranscript(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"lines", "bytes", "sha256"}));
  TranscriptDigest digest;
  CAISSON_TRY(digest.lines, ReadRequired(value, path, "lines", ReadInteger, 0, audit::kMaxSeq));
  CAISSON_TRY(digest.bytes, ReadRequired(value, path, "bytes", ReadInteger, 0, audit::kMaxSeq));
  CAISSON_TRY(digest.sha256, ReadRequired(value, path, "sha256", ReadSha256));
  return digest;
}

Status ReadHost(const json& value, const std::string& path, SessionStatement& statement) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"caisson_version", "kernel"}));
  CAISSON_TRY(statement.caisson_version,
              ReadRequired(value, path, "caisson_version", ReadSentence, kMaxHostCharacters));
  CAISSON_TRY(statement.kernel, ReadRequired(value, path, "kernel", ReadSentence, kMaxHostCharacters));
  return {};
}

Result<SessionStatement> ReadPredicate(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(
      value, path,
      {"session_id", "project", "profile", "state", "runtime", "time", "events", "transcript", "digests", "host"}));
  SessionStatement statement;
  CAISSON_TRY(statement.session_id, ReadRequired(value, path, "session_id", ReadWord, "._-", 128));
  CAISSON_TRY(statement.project, ReadRequired(value, path, "project", ReadSentence, kMaxProjectCharacters));
  CAISSON_TRY(statement.profile, ReadRequired(value, path, "profile", ReadSentence, kMaxHostCharacters));
  CAISSON_TRY(const size_t state, ReadRequired(value, path, "state", ReadChoice, kStates));
  statement.state = kStates.begin()[state];
  CAISSON_TRY(statement.runtime, ReadRequired(value, path, "runtime", ReadWord, "._-", 64));
  CAISSON_TRY(statement.time, ReadRequired(value, path, "time", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(statement.events, ReadRequired(value, path, "events", ReadHead));
  CAISSON_TRY(statement.transcript, ReadRequired(value, path, "transcript", ReadTranscript));
  CAISSON_TRY_VOID(ReadRequired(value, path, "digests", ReadDigests, statement));
  CAISSON_TRY_VOID(ReadRequired(value, path, "host", ReadHost, statement));
  return statement;
}

json SubjectOf(const SessionStatement& statement) {
  return json::array({{{"name", "transcript.cast"}, {"digest", {{"sha256", statement.transcript.sha256}}}}});
}

Status ExpectConstant(const json& value, const char* name, std::string_view constant) {
  CAISSON_TRY_VOID(ReadRequired(value, "", name, ReadChoice, std::initializer_list<std::string_view>{constant}));
  return {};
}

}  // namespace

std::string Canonical(const SessionStatement& statement) {
  const json predicate = {{"session_id", statement.session_id},
                          {"project", statement.project},
                          {"profile", statement.profile},
                          {"state", statement.state},
                          {"runtime", statement.runtime},
                          {"time", statement.time},
                          {"events", {{"seq", statement.events.seq}, {"hash", statement.events.hash}}},
                          {"transcript",
                           {{"lines", statement.transcript.lines},
                            {"bytes", statement.transcript.bytes},
                            {"sha256", statement.transcript.sha256}}},
                          {"digests",
                           {{"policy", statement.policy_digest},
                            {"isolation", statement.isolation_digest},
                            {"diff", NullIfEmpty(statement.diff_digest)}}},
                          {"host", {{"caisson_version", statement.caisson_version}, {"kernel", statement.kernel}}}};
  return audit::CanonicalJson({{"_type", attest::kStatementType},
                               {"predicateType", kSessionPredicateType},
                               {"predicate", predicate},
                               {"subject", SubjectOf(statement)}});
}

Result<SessionStatement> ParseSessionStatement(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = attest::kMaxStatementBytes;
  CAISSON_TRY(const json root, ReadJson(text, bounds));
  if (!root.is_object()) return WrongTypeError("", "an object", root);
  // Checked first: under another type the other members mean something else.
  CAISSON_TRY_VOID(ExpectConstant(root, "_type", attest::kStatementType));
  CAISSON_TRY_VOID(ExpectConstant(root, "predicateType", kSessionPredicateType));
  CAISSON_TRY_VOID(ExpectObject(root, "", {"_type", "subject", "predicateType", "predicate"}));
  CAISSON_TRY(SessionStatement statement, ReadRequired(root, "", "predicate", ReadPredicate));
  CAISSON_TRY(const json* subject, RequireMember(root, "", "subject"));
  if (*subject != SubjectOf(statement)) return FieldError("subject", "is not what predicate.transcript says it is");
  return statement;
}

std::string CanonicalDigest(const json& value) { return Sha256Hex(audit::CanonicalJson(value)); }

Result<std::string> SignSession(SessionStatement statement, const attest::PrivateKey& key) {
  if (statement.time.empty()) statement.time = UtcNow();
  statement.project = audit::OneLine(statement.project, kMaxProjectCharacters);
  // Check first, so that every signed statement is accepted later.
  const std::string payload = Canonical(statement);
  CAISSON_TRY_VOID(ParseSessionStatement(payload));
  return attest::SignPayload(payload, key);
}

bool IsSessionStatement(std::string_view payload) {
  JsonBounds bounds;
  bounds.max_bytes = attest::kMaxStatementBytes;
  const Result<json> root = ReadJson(payload, bounds);
  return root && root->is_object() && root->contains("predicateType") &&
         root->at("predicateType") == kSessionPredicateType;
}

SessionStatementCheck VerifySessionEnvelope(std::string_view envelope, const std::vector<attest::PublicKey>& keys) {
  SessionStatementCheck check;
  attest::OpenedEnvelope opened = attest::OpenEnvelope(envelope, keys);
  if (opened.finding) {
    check.finding = std::move(opened.finding);
    return check;
  }
  Result<SessionStatement> statement = ParseSessionStatement(opened.payload);
  if (!statement) {
    check.finding = attest::Finding{attest::Fault::kStatement, "payload: " + statement.error().message};
    return check;
  }
  check.statement = *std::move(statement);
  check.key_id = std::move(opened.key_id);
  return check;
}

}  // namespace caisson::session
