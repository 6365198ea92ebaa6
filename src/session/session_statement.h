// A signed statement about a session: an in-toto Statement v1 in a DSSE envelope, like the attestation of a result. See
// schemas/session_statement.schema.json. Its subject is the transcript; its predicate binds the session's events by the
// hash of the last one, which through the chain covers all, and the policy, the isolation and the final changes by
// SHA-256.
//
//   CAISSON_TRY(std::string envelope, SignSession(statement, key));
//   SessionStatementCheck check = VerifySessionEnvelope(envelope, keys);
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/envelope.h"
#include "attest/key.h"
#include "audit/hash_chain.h"
#include "base/result.h"
#include "session/transcript_format.h"

namespace caisson::session {

inline constexpr char kSessionPredicateType[] = "urn:caisson:predicate:session:1";

// Digests are SHA-256 in lower-case hex; empty: none.
struct SessionStatement {
  std::string session_id;
  std::string project;  // the directory the session was opened on, as text for people
  std::string profile;  // its name
  std::string state;    // stopped, applied or discarded
  std::string runtime;  // native, container, …
  std::string time;     // when it was signed; empty: now
  audit::Head events;   // of the last event
  TranscriptDigest transcript;
  std::string policy_digest;
  std::string isolation_digest;  // of the session's isolation report, in canonical form
  std::string diff_digest;       // of the final changes; empty: not computed
  std::string caisson_version;
  std::string kernel;
};

// In canonical form: members sorted by the bytes of their names, no blanks, UTF-8 unescaped.
std::string Canonical(const SessionStatement& statement);
// Errors are ErrorKind::kInvalid and name the field by path. Unknown members are refused.
Result<SessionStatement> ParseSessionStatement(std::string_view text);

// SHA-256 of a JSON value in canonical form, for isolation_digest.
std::string CanonicalDigest(const nlohmann::json& value);

// The envelope is one line of JSON without its end.
Result<std::string> SignSession(SessionStatement statement, const attest::PrivateKey& key);

// Whether a payload claims to be a statement about a session, and not about a result.
bool IsSessionStatement(std::string_view payload);

struct SessionStatementCheck {
  std::optional<attest::Finding> finding;  // none: all is well
  SessionStatement statement;              // only when all is well
  std::string key_id;                      // whose signature holds; likewise
};
SessionStatementCheck VerifySessionEnvelope(std::string_view envelope, const std::vector<attest::PublicKey>& keys);

}  // namespace caisson::session
