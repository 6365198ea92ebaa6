#include "session/session_statement.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/corpus.h"

namespace caisson::session {
namespace {

SessionStatement Sample() {
  SessionStatement statement;
  statement.session_id = "s-1";
  statement.project = "/home/a/project";
  statement.profile = "session";
  statement.state = "applied";
  statement.runtime = "native";
  statement.events = {12, std::string(64, 'e')};
  statement.transcript = {40, 4000, std::string(64, 'c')};
  statement.policy_digest = std::string(64, 'a');
  statement.isolation_digest = CanonicalDigest({{"runtime", "native"}});
  statement.diff_digest = std::string(64, 'd');
  statement.caisson_version = "1.2.3";
  statement.kernel = "6.1.0";
  return statement;
}

class SessionStatementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/caisson-statement-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    ASSERT_TRUE(attest::GenerateKey(directory_ + "/key"));
    ASSERT_TRUE(attest::GenerateKey(directory_ + "/other"));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  attest::PrivateKey Private(const char* name) const { return *attest::LoadPrivateKey(directory_ + "/" + name); }
  std::vector<attest::PublicKey> Public(const std::string& name) const {
    std::vector<attest::PublicKey> keys;
    keys.push_back(*attest::LoadPublicKey(directory_ + "/" + name + ".pub"));
    return keys;
  }

  std::string directory_;
};

TEST(SessionStatementCorpus, IsJudgedAsTheSchemaJudgesIt) {
  testing::ExpectAgreement("session_statement", 2, 15, 2,
                           [](const std::string& text) { return ParseSessionStatement(text).has_value(); });
}

TEST_F(SessionStatementTest, IsSignedAndVerified) {
  const Result<std::string> envelope = SignSession(Sample(), Private("key"));
  ASSERT_TRUE(envelope) << envelope.error().message;
  const SessionStatementCheck check = VerifySessionEnvelope(*envelope, Public("key"));
  ASSERT_FALSE(check.finding) << check.finding->message;
  EXPECT_EQ(check.key_id, Private("key").id());
  EXPECT_EQ(check.statement.events.hash, std::string(64, 'e'));
  EXPECT_EQ(check.statement.transcript.lines, 40);
  EXPECT_EQ(check.statement.diff_digest, std::string(64, 'd'));
  EXPECT_FALSE(check.statement.time.empty());
  EXPECT_EQ(VerifySessionEnvelope(*envelope, Public("other")).finding->fault, attest::Fault::kUnknownKey);
  std::string changed = *envelope;
  const size_t payload = changed.find("\"payload\":\"") + 40;
  changed[payload] = changed[payload] == 'A' ? 'B' : 'A';
  EXPECT_TRUE(VerifySessionEnvelope(changed, Public("key")).finding);
  // It is no statement about a result, and the check for results says so.
  EXPECT_EQ(attest::VerifyEnvelope(*envelope, Public("key")).finding->fault, attest::Fault::kStatement);
  EXPECT_TRUE(IsSessionStatement(Canonical(check.statement)));
  EXPECT_FALSE(IsSessionStatement("{}"));
}

TEST_F(SessionStatementTest, SignsOnlyWhatItWouldAccept) {
  SessionStatement statement = Sample();
  statement.project = "two\nlines \xFF" + std::string(5000, 'x');
  statement.diff_digest = "";
  EXPECT_TRUE(SignSession(statement, Private("key")));
  statement.state = "running";
  EXPECT_FALSE(SignSession(statement, Private("key")));
  statement = Sample();
  statement.policy_digest = "";
  EXPECT_FALSE(SignSession(statement, Private("key")));
}

}  // namespace
}  // namespace caisson::session
