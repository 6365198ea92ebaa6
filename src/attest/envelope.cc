#include "attest/envelope.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/words.h"
#include "verify/digest.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::attest {
namespace {

using nlohmann::json;
using namespace verify;  // its readers

// DSSE lets a signer choose between the two alphabets of RFC 4648. A mixture of both is refused.
Result<std::string> ReadBase64(const json& value, const std::string& path) {
  CAISSON_TRY(std::string text, ReadString(value, path));
  if (text.find_first_of("+/") == std::string::npos) {
    std::replace(text.begin(), text.end(), '-', '+');
    std::replace(text.begin(), text.end(), '_', '/');
  }
  std::optional<std::string> bytes = DecodeBase64(text);
  if (!bytes) return FieldError(path, "is not base64 (RFC 4648, padded, without blanks)");
  return *std::move(bytes);
}

struct Signature {
  std::string key_id;  // empty: not said
  std::string bytes;
};

struct Envelope {
  std::string payload_type;
  std::string payload;
  std::vector<Signature> signatures;
};

Result<std::vector<Signature>> ReadSignatures(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 1, kMaxSignatures));
  std::vector<Signature> signatures;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string element = PathOfElement(path, i);
    if (!value[i].is_object()) return WrongTypeError(element, "an object", value[i]);
    Signature signature;
    CAISSON_TRY_VOID(ReadOptional(value[i], element, "keyid", signature.key_id, ReadString));
    CAISSON_TRY(signature.bytes, ReadRequired(value[i], element, "sig", ReadBase64));
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

Result<Envelope> ParseEnvelope(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxEnvelopeBytes;
  CAISSON_TRY(const json root, ReadJson(text, bounds));
  if (!root.is_object()) return WrongTypeError("", "an object", root);
  Envelope envelope;
  CAISSON_TRY(envelope.payload_type, ReadRequired(root, "", "payloadType", ReadString));
  CAISSON_TRY(envelope.payload, ReadRequired(root, "", "payload", ReadBase64));
  CAISSON_TRY(envelope.signatures, ReadRequired(root, "", "signatures", ReadSignatures));
  return envelope;
}

struct Signer {
  const PublicKey* key = nullptr;  // the key whose signature is valid; null: none
  bool was_named = false;          // a signature was there to be checked with a key given
};

Signer FindSigner(const Envelope& envelope, const std::vector<PublicKey>& keys) {
  const std::string message = Pae(envelope.payload_type, envelope.payload);
  Signer signer;
  for (const Signature& signature : envelope.signatures) {
    for (const PublicKey& key : keys) {
      if (!signature.key_id.empty() && signature.key_id != key.id()) continue;
      signer.was_named = true;
      if (!key.Verifies(message, signature.bytes)) continue;
      signer.key = &key;
      return signer;
    }
  }
  return signer;
}

std::string KeyIdsOf(const Envelope& envelope) {
  std::string ids;
  for (const Signature& signature : envelope.signatures) {
    if (!ids.empty()) ids += ", ";
    ids += Quoted(signature.key_id);
  }
  return ids;
}

Verification Broken(Fault fault, std::string message) {
  Verification verification;
  verification.finding = Finding{fault, std::move(message)};
  return verification;
}

// Nothing when the statement describes `result` truthfully.
std::optional<std::string> Difference(const Statement& statement, std::string_view result) {
  const std::string digest = Sha256Hex(result);
  if (statement.digests.result != digest)
    return "the result's SHA-256 is " + digest + ", but " + statement.digests.result + " was signed";
  const Result<Statement> expected = StatementOf(result, statement.job_id, statement.time);
  if (!expected) return "the result cannot be read: " + expected.error().message;
  if (Canonical(*expected) != Canonical(statement)) return "the statement contradicts the result";
  return std::nullopt;
}

}  // namespace

std::string Pae(std::string_view payload_type, std::string_view payload) {
  std::string text = "DSSEv1 ";
  text.append(std::to_string(payload_type.size())).append(" ").append(payload_type).append(" ");
  return text.append(std::to_string(payload.size())).append(" ").append(payload);
}

Result<std::string> Sign(std::string_view result, const PrivateKey& key, const SignOptions& options) {
  CAISSON_TRY(const Statement statement,
              StatementOf(result, options.job_id, options.time.empty() ? UtcNow() : options.time));
  return SignPayload(Canonical(statement), key);
}

std::string SignPayload(std::string_view payload, const PrivateKey& key) {
  json envelope = {{"payloadType", kPayloadType}, {"payload", EncodeBase64(payload)}};
  envelope["signatures"].push_back({{"keyid", key.id()}, {"sig", EncodeBase64(key.Sign(Pae(kPayloadType, payload)))}});
  return envelope.dump();
}

const char* FaultName(Fault fault) {
  switch (fault) {
    case Fault::kMalformed:
      return "malformed";
    case Fault::kOtherType:
      return "payload_type";
    case Fault::kUnknownKey:
      return "unknown_key";
    case Fault::kBadSignature:
      return "bad_signature";
    case Fault::kStatement:
      return "statement";
    case Fault::kOtherResult:
      return "other_result";
  }
  return "malformed";
}

OpenedEnvelope OpenEnvelope(std::string_view envelope, const std::vector<PublicKey>& keys) {
  const auto broken = [](Fault fault, std::string message) {
    OpenedEnvelope opened;
    opened.finding = Finding{fault, std::move(message)};
    return opened;
  };
  Result<Envelope> parsed = ParseEnvelope(envelope);
  if (!parsed) return broken(Fault::kMalformed, parsed.error().message);
  if (parsed->payload_type != kPayloadType) {
    return broken(Fault::kOtherType,
                  "payloadType: " + Quoted(parsed->payload_type) + " where " + Quoted(kPayloadType) + " is due");
  }
  const Signer signer = FindSigner(*parsed, keys);
  if (!signer.was_named) {
    return broken(Fault::kUnknownKey, "signatures: none is by a given key; the envelope names " + KeyIdsOf(*parsed));
  }
  if (signer.key == nullptr) {
    return broken(Fault::kBadSignature,
                  "signatures: none is valid; the payload was changed after it was signed, or was never signed");
  }
  return {std::nullopt, std::move(parsed->payload), signer.key->id()};
}

Verification VerifyEnvelope(std::string_view envelope, const std::vector<PublicKey>& keys,
                            std::optional<std::string_view> result) {
  OpenedEnvelope opened = OpenEnvelope(envelope, keys);
  if (opened.finding) return Broken(opened.finding->fault, std::move(opened.finding->message));
  Result<Statement> statement = ParseStatement(opened.payload);
  if (!statement) return Broken(Fault::kStatement, "payload: " + statement.error().message);
  if (result) {
    if (const std::optional<std::string> difference = Difference(*statement, *result))
      return Broken(Fault::kOtherResult, *difference);
  }
  Verification verification;
  verification.statement = *std::move(statement);
  verification.key_id = std::move(opened.key_id);
  return verification;
}

}  // namespace caisson::attest
