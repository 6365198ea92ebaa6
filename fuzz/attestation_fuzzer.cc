// Any sender may submit an envelope, and its payload is read only if its signature is valid. Here the bytes are tried
// as an envelope, as a statement that a trusted key signed, and as a result to be signed.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attest/envelope.h"
#include "fault.h"
#include "target.h"

namespace {

using namespace caisson::attest;

// The first key of RFC 8032, section 7.1: known to all, so that fuzzing is repeatable.
constexpr char kPrivatePem[] =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
    "-----END PRIVATE KEY-----\n";
constexpr char kPublicPem[] =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
    "-----END PUBLIC KEY-----\n";

const PrivateKey& Secret() {
  static const caisson::Result<PrivateKey> key = PrivateKey::FromPem(kPrivatePem);
  return *key;
}

const std::vector<PublicKey>& Trusted() {
  static const std::vector<PublicKey> keys = [] {
    std::vector<PublicKey> list;
    list.push_back(*PublicKey::FromPem(kPublicPem));
    return list;
  }();
  return keys;
}

void CheckFinding(const Verification& verification) {
  if (verification.finding)
    CheckFault(caisson::Error::Invalid(verification.finding->message));
  else
    CAISSON_CHECK(verification.key_id == Secret().id() && !verification.statement.digests.result.empty());
}

}  // namespace

CAISSON_FUZZ_TARGET(attestation) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  CheckFinding(VerifyEnvelope(text, Trusted()));
  (void)PublicKey::FromPem(text.substr(0, 1024));

  if (const auto statement = ParseStatement(text)) {
    // An accepted statement has one canonical form, which is accepted too and means the same.
    const std::string canonical = Canonical(*statement);
    const auto again = ParseStatement(canonical);
    CAISSON_CHECK(again && Canonical(*again) == canonical);
  } else {
    CheckFault(statement.error());
  }

  if (const auto envelope = Sign(text, Secret(), {})) {
    const Verification verification = VerifyEnvelope(*envelope, Trusted(), text);
    CAISSON_CHECK(!verification.finding);
    CAISSON_CHECK(VerifyEnvelope(*envelope, Trusted(), std::string(text) + " ").finding);
  } else {
    CheckFault(envelope.error());
  }
  return 0;
}
