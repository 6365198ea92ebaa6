#include "attest/envelope.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/base64.h"
#include "support/corpus.h"
#include "verify/request_syntax.h"

namespace caisson::attest {
namespace {

using nlohmann::json;
using testing::Base64;

constexpr char kResult[] = R"({"request_id": "req-1", "attempt": 1, "mode": "balanced", "status": "pass",
  "tier": "run", "failure_class": null, "exit_code": 0, "duration_ms": 1, "stdout": "", "stderr": "", "artifacts": [],
  "skipped_checks": [], "terminal_event": "completed", "host": {"kernel": "6.1.0", "caisson_version": "0.1.0"},
  "source_digest": "41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d"})";

struct KeyPair {
  PrivateKey secret;
  std::string public_pem;
};

KeyPair MakeKey() {
  char directory[] = "/tmp/caisson-envelope-test-XXXXXX";
  EXPECT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/key";
  EXPECT_TRUE(GenerateKey(path));
  KeyPair pair{*LoadPrivateKey(path), testing::Slurp(path + ".pub")};
  std::filesystem::remove_all(directory);
  return pair;
}

class Envelopes : public ::testing::Test {
 protected:
  Envelopes() : key_(MakeKey()), other_(MakeKey()) {
    keys_.push_back(*PublicKey::FromPem(key_.public_pem));
    envelope_ = json::parse(*Sign(kResult, key_.secret, {"job-1", "2030-01-31T12:00:00.000Z"}));
  }

  Verification Judge(const json& envelope, std::optional<std::string_view> result = std::nullopt) const {
    return VerifyEnvelope(envelope.dump(), keys_, result);
  }
  // "cause: message", or "intact".
  std::string Finding(const std::string& envelope, std::optional<std::string_view> result = std::nullopt) const {
    const Verification verification = VerifyEnvelope(envelope, keys_, result);
    if (!verification.finding) return "intact";
    return std::string(FaultName(verification.finding->fault)) + ": " + verification.finding->message;
  }
  // An envelope around any payload, truly signed.
  json Signed(const std::string& payload, const std::string& type = kPayloadType) const {
    json envelope = envelope_;
    envelope["payloadType"] = type;
    envelope["payload"] = Base64(payload);
    envelope["signatures"][0]["sig"] = Base64(key_.secret.Sign(Pae(type, payload)));
    return envelope;
  }
  KeyPair key_, other_;
  std::vector<PublicKey> keys_;
  json envelope_;
};

TEST(Pae, IsThatOfTheSpecification) {
  EXPECT_EQ(Pae("http://example.com/HelloWorld", "hello world"),
            "DSSEv1 29 http://example.com/HelloWorld 11 hello world");
  EXPECT_EQ(Pae("é", ""), "DSSEv1 2 é 0 ");
}

TEST_F(Envelopes, SayWhatWasSigned) {
  const Verification verification = Judge(envelope_, kResult);
  ASSERT_FALSE(verification.finding) << verification.finding->message;
  EXPECT_EQ(verification.key_id, key_.secret.id());
  EXPECT_EQ(verification.statement.request_id, "req-1");
  EXPECT_EQ(verification.statement.job_id, "job-1");
  EXPECT_EQ(verification.statement.status, verify::VerdictStatus::kPass);
  EXPECT_FALSE(Judge(envelope_).finding);
}

TEST_F(Envelopes, AreBoundToTheBytesOfTheResult) {
  const std::string finding = Finding(envelope_.dump(), std::string(kResult) + "\n");
  EXPECT_EQ(finding.substr(0, 35), "other_result: the result's SHA-256 ");
  EXPECT_NE(Finding(envelope_.dump(), ""), "intact");
}

TEST_F(Envelopes, ThatContradictTheirResultAreRefused) {
  json statement = json::parse(*verify::DecodeBase64(envelope_["payload"].get<std::string>()));
  statement["predicate"]["tier"] = "test";
  EXPECT_FALSE(Judge(Signed(statement.dump())).finding);
  EXPECT_EQ(Finding(Signed(statement.dump()).dump(), kResult), "other_result: the statement contradicts the result");
}

TEST_F(Envelopes, ShowEveryChangeOfThePayload) {
  const std::string payload = *verify::DecodeBase64(envelope_["payload"].get<std::string>());
  for (size_t i = 0; i < payload.size(); ++i) {
    std::string changed = payload;
    changed[i] ^= 1;
    json envelope = envelope_;
    envelope["payload"] = Base64(changed);
    ASSERT_EQ(Judge(envelope).finding->fault, Fault::kBadSignature) << i;
  }
}

TEST_F(Envelopes, OfStrangersAreRefused) {
  EXPECT_EQ(Finding(*Sign(kResult, other_.secret, {})),
            "unknown_key: signatures: none is by a given key; the envelope names \"" + other_.secret.id() + "\"");
  // The id is only a hint: a trusted id does not make a forged signature valid, and a missing id does not make a valid
  // one fail.
  json forged = json::parse(*Sign(kResult, other_.secret, {}));
  forged["signatures"][0]["keyid"] = key_.secret.id();
  EXPECT_EQ(Judge(forged).finding->fault, Fault::kBadSignature);
  forged["signatures"][0].erase("keyid");
  EXPECT_EQ(Judge(forged).finding->fault, Fault::kBadSignature);
  envelope_["signatures"][0].erase("keyid");
  EXPECT_FALSE(Judge(envelope_).finding);
  EXPECT_EQ(VerifyEnvelope(envelope_.dump(), {}).finding->fault, Fault::kUnknownKey);
}

TEST_F(Envelopes, NeedOneGoodSignatureAmongSeveral) {
  json stranger = {{"keyid", "somebody else's"}, {"sig", Base64("x")}};
  json broken = {{"keyid", key_.secret.id()}, {"sig", Base64(std::string(64, '\0'))}};
  json envelope = envelope_;
  envelope["signatures"].insert(envelope["signatures"].begin(), {stranger, broken});
  EXPECT_FALSE(Judge(envelope).finding);
  envelope["signatures"] = {stranger, broken};
  EXPECT_EQ(Judge(envelope).finding->fault, Fault::kBadSignature);
  envelope["signatures"] = {stranger};
  EXPECT_EQ(Judge(envelope).finding->fault, Fault::kUnknownKey);
}

TEST_F(Envelopes, OfAnotherTypeAreRefused) {
  const std::string payload = *verify::DecodeBase64(envelope_["payload"].get<std::string>());
  EXPECT_EQ(Finding(Signed(payload, "text/plain").dump()),
            "payload_type: payloadType: \"text/plain\" where \"application/vnd.in-toto+json\" is due");
  EXPECT_EQ(Judge(Signed("{}")).finding->message, "payload: _type: required field is missing");
  EXPECT_EQ(Judge(Signed("{\"_type\":1,\"_type\":2}")).finding->fault, Fault::kStatement);
  // The type is part of what is signed.
  json moved = Signed(payload, "text/plain");
  moved["payloadType"] = kPayloadType;
  EXPECT_EQ(Judge(moved).finding->fault, Fault::kBadSignature);
}

TEST_F(Envelopes, MustBeWellFormed) {
  const auto with = [this](const char* name, json value) {
    json envelope = envelope_;
    envelope[name] = std::move(value);
    return Finding(envelope.dump());
  };
  const auto without = [this](const char* name) {
    json envelope = envelope_;
    envelope.erase(name);
    return Finding(envelope.dump());
  };
  EXPECT_EQ(Finding("").substr(0, 29), "malformed: line 1, column 1: ");
  EXPECT_EQ(Finding("[]"), "malformed: document: expected an object, found an array");
  EXPECT_EQ(without("payload"), "malformed: payload: required field is missing");
  EXPECT_EQ(without("payloadType"), "malformed: payloadType: required field is missing");
  EXPECT_EQ(without("signatures"), "malformed: signatures: required field is missing");
  EXPECT_EQ(with("signatures", json::array()), "malformed: signatures: must not be empty");
  EXPECT_EQ(with("signatures", json::array({json::object()})),
            "malformed: signatures[0].sig: required field is missing");
  EXPECT_EQ(with("signatures", json(std::vector<json>(kMaxSignatures + 1, envelope_["signatures"][0]))).substr(0, 35),
            "malformed: signatures: holds 17 ent");
  const std::string text = envelope_.dump();
  EXPECT_EQ(Finding("{\"payloadType\":\"x\"," + text.substr(1)).substr(0, 22), "malformed: payloadType");
  EXPECT_EQ(Finding(text + std::string(kMaxEnvelopeBytes, ' ')).substr(0, 26), "malformed: document: takes");
}

TEST_F(Envelopes, TakeStrictBase64InEitherAlphabet) {
  const std::string base64_fault = "malformed: payload: is not base64 (RFC 4648, padded, without blanks)";
  const auto with_payload = [this](const std::string& text) {
    json envelope = envelope_;
    envelope["payload"] = text;
    return Finding(envelope.dump());
  };
  const std::string payload = envelope_["payload"];
  for (const std::string& text : {payload + "\n", " " + payload, payload + "A", payload + "====", std::string("A"),
                                  std::string("+-=="), std::string("QQ"), std::string("QR==")}) {
    EXPECT_EQ(with_payload(text), base64_fault) << text;
  }
  json envelope = Signed("\xFB\xFF\xFE");  // "+//+", and "-__-" where names of files must be
  EXPECT_EQ(Judge(envelope).finding->fault, Fault::kStatement);
  envelope["payload"] = "-__-";
  EXPECT_EQ(Judge(envelope).finding->fault, Fault::kStatement);
}

TEST_F(Envelopes, MayCarryWhatNobodySigned) {
  envelope_["a_later_member"] = true;
  envelope_["signatures"][0]["cert"] = "x";
  EXPECT_FALSE(Judge(envelope_).finding);
}

TEST_F(Envelopes, AreMadeOfResultsOnly) {
  const Result<std::string> envelope = Sign("{}", key_.secret, {});
  ASSERT_FALSE(envelope);
  EXPECT_EQ(envelope.error().message, "request_id: required field is missing");
}

}  // namespace
}  // namespace caisson::attest
