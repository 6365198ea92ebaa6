// The signed content: an in-toto Statement v1 about one verification. See schemas/attestation.schema.json.
//
// Its subject is the source that was verified, by digest. Its predicate names the verdict and binds everything the
// verdict rests on by SHA-256: the source, the policy in force, the isolation that was applied, the verdict itself, and
// the exact bytes of the result document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "verify/result.h"

namespace caisson::attest {

inline constexpr char kStatementType[] = "https://in-toto.io/Statement/v1";
inline constexpr char kPredicateType[] = "urn:caisson:predicate:verification:1";
inline constexpr size_t kMaxResultBytes = size_t{256} << 20;
inline constexpr size_t kMaxStatementBytes = size_t{16} << 10;

// SHA-256 in lower-case hex; empty: the result names none.
struct Digests {
  std::string source;     // of the tree under test: the result's source_digest
  std::string policy;     // the result's policy_digest
  std::string image;      // of the image that the result names
  std::string isolation;  // of the result's member isolation, in canonical form
  std::string
      verdict;  // of its members status, failure_class, terminal_event, tier, exit_code: equal for equal verdicts
  std::string result;  // of the document, byte for byte
};

struct Statement {
  std::string request_id;
  std::string job_id;  // empty: none
  int64_t attempt = 1;
  verify::VerdictStatus status = verify::VerdictStatus::kPass;
  std::string failure_class;  // empty: none
  std::string tier;           // empty: nothing ran
  std::string time;           // when it was signed
  Digests digests;
  std::string caisson_version;  // of the program that verified
  std::string kernel;           // it ran on
};

// Makes the statement about a result document. Errors are ErrorKind::kInvalid: `result` must be a verification result
// and name its host.
Result<Statement> StatementOf(std::string_view result, const std::string& job_id, const std::string& time);

// In canonical form: members sorted by the bytes of their names, no blanks, UTF-8 unescaped.
std::string Canonical(const Statement& statement);

// Errors are ErrorKind::kInvalid and name the field by path. Only this version's predicate is read, and unknown members
// are refused: an ignored member might be a restriction.
Result<Statement> ParseStatement(std::string_view text);

}  // namespace caisson::attest
