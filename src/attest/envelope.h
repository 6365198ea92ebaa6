// The DSSE envelope: a Statement with signatures over it, as one JSON document that any DSSE verifier can check.
//
//   CAISSON_TRY(std::string envelope, Sign(result, key, {}));
//   …                                                          // perhaps years later, on another machine
//   Verification verification = VerifyEnvelope(envelope, keys, result);
//   if (!verification.finding) Believe(verification.statement);
//
// A signature covers PAE(payloadType, payload): "DSSEv1", and both with their lengths in front, so that a payload
// cannot be read as another type, and no byte can move between the two.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/key.h"
#include "attest/statement.h"
#include "base/result.h"

namespace caisson::attest {

inline constexpr char kPayloadType[] = "application/vnd.in-toto+json";
inline constexpr size_t kMaxEnvelopeBytes = size_t{64} << 10;
inline constexpr size_t kMaxSignatures = 16;

// The signed bytes. Lengths count bytes.
std::string Pae(std::string_view payload_type, std::string_view payload);

struct SignOptions {
  std::string job_id;  // empty: none
  std::string time;    // empty: now
};

// `result` is the result document, byte for byte as it is kept: the digest covers these bytes. Errors are
// ErrorKind::kInvalid. The envelope is one line of JSON without its end.
Result<std::string> Sign(std::string_view result, const PrivateKey& key, const SignOptions& options);

// The same for any payload of the type kPayloadType.
std::string SignPayload(std::string_view payload, const PrivateKey& key);

enum class Fault {
  kMalformed,     // not an envelope: JSON, a member, or base64
  kOtherType,     // an envelope with another payload type
  kUnknownKey,    // signed by none of the given keys
  kBadSignature,  // names a given key, but the signature is wrong: changed afterwards, or forged
  kStatement,     // truly signed, but not a statement about a verification
  kOtherResult,   // about another result document than the one given
};
const char* FaultName(Fault fault);

struct Finding {
  Fault fault = Fault::kMalformed;
  std::string message;  // names the place and the cause; fit for a terminal
};

// What a trusted key signed, before it is known what it says.
struct OpenedEnvelope {
  std::optional<Finding> finding;  // none: the signature holds
  std::string payload;             // only then
  std::string key_id;              // whose signature holds; likewise
};
OpenedEnvelope OpenEnvelope(std::string_view envelope, const std::vector<PublicKey>& keys);

struct Verification {
  std::optional<Finding> finding;  // none: all is well
  Statement statement;             // only when all is well
  std::string key_id;              // whose signature holds; likewise
};

// One good signature by one of `keys` is enough. Only payload and payloadType are signed. A keyid therefore only
// selects the keys to try, and members that DSSE does not define are ignored, as DSSE demands. If `result` is given,
// the statement must describe exactly these bytes.
Verification VerifyEnvelope(std::string_view envelope, const std::vector<PublicKey>& keys,
                            std::optional<std::string_view> result = std::nullopt);

}  // namespace caisson::attest
