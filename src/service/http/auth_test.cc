#include "service/http/auth.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "service/http/gate.h"
#include "verify/digest.h"

namespace caisson::service::http {
namespace {

constexpr char kToken[] = "5f0c1d2e3b4a59687786a5b4c3d2e1f00112233445566778899aabbccddeeff0";

std::string TokensWith(const std::string& lines) {
  return "version: 1\ntokens:\n  - name: ci\n    tenant: course-7\n    rights: [submit, read]\n    sha256: " +
         verify::Sha256Hex(kToken) + "\n" + lines;
}

TEST(Tokens, AreRead) {
  const auto tokens = ReadTokens(TokensWith("    expires: 2030-01-31T00:00:00Z\n"), "tokens.yaml");
  ASSERT_TRUE(tokens) << tokens.error().message;
  ASSERT_EQ(tokens->size(), 1u);
  const Caller& caller = tokens->front().caller;
  EXPECT_EQ(caller.subject, "token:ci");
  EXPECT_EQ(caller.tenant, "course-7");
  EXPECT_EQ(caller.rights, (std::set<Right>{Right::kSubmit, Right::kRead}));
  EXPECT_EQ(tokens->front().expires_ms, 1896048000000);
}

TEST(Tokens, FaultsAreNamed) {
  const std::pair<std::string, std::string> rows[] = {
      {"tokens: []\n", "version"},
      {"version: 2\ntokens: []\n", "version"},
      {TokensWith("    expire: 2030-01-31T00:00:00Z\n"), "expires"},
      {TokensWith("    expires: tomorrow\n"), "tomorrow"},
      {"version: 1\ntokens:\n  - name: a\n    tenant: b\n    rights: [read]\n", "sha256"},
      {"version: 1\ntokens:\n  - name: a\n    tenant: b\n    rights: [root]\n    sha256: x\n", "root"},
      {"version: 1\ntokens:\n  - name: a\n    tenant: b\n    rights: [read]\n    sha256: secret\n", "SHA-256"},
      {"version: 1\ntokens:\n  - name: a b\n", "letters"},
      {TokensWith(TokensWith("").substr(TokensWith("").find("  - name"))), "came before"},
  };
  for (const auto& [text, part] : rows) {
    const auto tokens = ReadTokens(text, "tokens.yaml");
    ASSERT_FALSE(tokens) << text;
    EXPECT_NE(tokens.error().message.find(part), std::string::npos) << tokens.error().message;
    EXPECT_EQ(tokens.error().message.compare(0, 11, "tokens.yaml"), 0) << tokens.error().message;
  }
}

TEST(Tokens, AreFoundExactlyAndUntilTheyExpire) {
  auto tokens = *ReadTokens(TokensWith("    expires: 2030-01-31T00:00:00Z\n"), "tokens.yaml");
  EXPECT_NE(FindToken(tokens, kToken, 1896048000000 - 1), nullptr);
  EXPECT_EQ(FindToken(tokens, kToken, 1896048000000), nullptr);
  EXPECT_EQ(FindToken(tokens, std::string(kToken) + "0", 0), nullptr);
  EXPECT_EQ(FindToken(tokens, std::string(kToken).substr(1), 0), nullptr);
  EXPECT_EQ(FindToken(tokens, "", 0), nullptr);
  EXPECT_EQ(FindToken(tokens, verify::Sha256Hex(kToken), 0), nullptr);  // the hash in the file is not a token
}

class AuthTest : public testing::Test {
 protected:
  AuthTest() {
    char path[] = "/tmp/caisson-auth-test-XXXXXX";
    EXPECT_NE(::mkdtemp(path), nullptr);
    directory_ = path;
    config.tokens = directory_ + "/tokens.yaml";
    Write(TokensWith(""));
  }
  ~AuthTest() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& text, mode_t mode = 0600) {
    const std::string fresh = config.tokens + ".new";
    std::ofstream(fresh) << text;
    ::chmod(fresh.c_str(), mode);
    std::filesystem::rename(fresh, config.tokens);
  }
  void Make() {
    auto made = Authenticator::Make(config);
    ASSERT_TRUE(made) << made.error().message;
    authenticator = *std::move(made);
  }
  static Request From(const Peer& peer, const std::string& authorization = "") {
    Request request;
    request.peer = peer;
    if (!authorization.empty()) request.fields.emplace_back("authorization", authorization);
    return request;
  }
  int StatusOf(const Request& request) {
    const auto answer = authenticator->Authenticate(request);
    return std::holds_alternative<Caller>(answer) ? 200 : std::get<Refusal>(answer).status;
  }

  ServerConfig config;
  std::unique_ptr<Authenticator> authenticator;
  const Peer remote{false, 0, false, "192.0.2.1"};

 private:
  std::string directory_;
};

TEST_F(AuthTest, UsersOfTheUnixSocketAreKnownByTheKernelsWord) {
  Make();
  for (const uint32_t uid : {uint32_t{0}, uint32_t{::geteuid()}}) {
    const auto own = authenticator->Authenticate(From({true, uid, false, "uid"}));
    EXPECT_EQ(std::get<Caller>(own).rights.count(Right::kAdmin), 1u);
  }
  EXPECT_EQ(StatusOf(From({true, 4712, false, "uid:4712"})), 401);
  // Only on a unix socket does the kernel vouch for the user id.
  EXPECT_EQ(StatusOf(From({false, 0, false, "192.0.2.9"})), 401);
}

TEST_F(AuthTest, TokensCountWhereverTheyComeFrom) {
  Make();
  const std::string good = std::string("Bearer ") + kToken;
  EXPECT_EQ(StatusOf(From(remote, good)), 200);
  EXPECT_EQ(StatusOf(From(remote, std::string("bearer ") + kToken)), 200);
  EXPECT_EQ(StatusOf(From({true, 4712, false, "uid:4712"}, good)), 200);
  // No fallback to a user with all rights.
  EXPECT_EQ(StatusOf(From({true, ::geteuid(), false, "uid"}, "Bearer wrong")), 401);
}

TEST_F(AuthTest, RefusalsDoNotSayWhatWasWrong) {
  Write(TokensWith("    expires: 2020-01-01T00:00:00Z\n"));
  Make();
  std::set<std::string> details;
  for (const std::string& header :
       {std::string(), std::string("Bearer ") + kToken, std::string("Bearer wrong"), std::string("Basic dXNlcjpwYXNz"),
        std::string("Bearer"), std::string("Bearer a b"), "Bearer " + std::string(1000, 'a')}) {
    const auto answer = authenticator->Authenticate(From(remote, header));
    ASSERT_TRUE(std::holds_alternative<Refusal>(answer)) << header;
    EXPECT_EQ(std::get<Refusal>(answer).status, 401);
    details.insert(std::get<Refusal>(answer).detail);
  }
  EXPECT_EQ(details.size(), 1u);
}

TEST_F(AuthTest, FailuresAreCountedAndLockNobodyOut) {
  config.bounds.auth_failures_per_minute = 3;
  Make();
  int limited = 0;
  for (int i = 0; i < 10; ++i) limited += StatusOf(From(remote, "Bearer wrong")) == 429 ? 1 : 0;
  EXPECT_GE(limited, 4);  // the minute may change once meanwhile
  EXPECT_EQ(StatusOf(From(remote, std::string("Bearer ") + kToken)), 200);
  EXPECT_EQ(StatusOf(From({false, 0, false, "192.0.2.2"}, "Bearer wrong")), 401);
}

TEST_F(AuthTest, TheFileMustBeOursAlone) {
  for (const mode_t mode : {0640, 0604, 0620, 0602}) {
    Write(TokensWith(""), mode);
    const auto made = Authenticator::Make(config);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find("chmod 600"), std::string::npos) << made.error().message;
  }
}

TEST_F(AuthTest, AWithdrawnTokenIsRefusedWithoutARestart) {
  Make();
  const Request good = From(remote, std::string("Bearer ") + kToken);
  ASSERT_EQ(StatusOf(good), 200);
  Write("version: 1\ntokens: []\n");
  const int64_t deadline = MonotonicNanos() + 30'000'000'000;
  while (StatusOf(good) == 200 && MonotonicNanos() < deadline) ::usleep(20'000);
  EXPECT_NE(StatusOf(good), 200);
  // While the file cannot be read, every token is refused and the error is reported.
  Write("version: 1\ntokens: [\n");
  while (StatusOf(good) != 503 && MonotonicNanos() < deadline) ::usleep(20'000);
  EXPECT_EQ(StatusOf(good), 503);
}

TEST(Gate, HostsMustBeKnownExactly) {
  const std::vector<std::string> allowed = {"Runner.Example.org"};
  for (const char* host : {"localhost", "LOCALHOST:8123", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8123",
                           "runner.example.org", "runner.example.org:443"})
    EXPECT_TRUE(IsAllowedHost(host, allowed)) << host;
  for (const char* host : {"",
                           "evil.example",
                           "localhost.evil.example",
                           "evil.localhost",
                           "localhost.",
                           "localhost@evil.example",
                           "localhost:",
                           "localhost:80:80",
                           "localhost:80a",
                           "localhost:123456",
                           "127.0.0.2",
                           "127.1",
                           "0.0.0.0",
                           "::1",
                           "[::1",
                           "[::1]x",
                           "[::1]:",
                           "example.org",
                           "xrunner.example.org",
                           "localhost, evil.example",
                           "localhost#"})
    EXPECT_FALSE(IsAllowedHost(host, allowed)) << host;
}

TEST(Gate, OtherSitesAreRefused) {
  const auto status = [](std::initializer_list<std::pair<std::string, std::string>> fields) {
    Request request;
    request.fields = fields;
    const auto refusal = JudgeOrigin(request, {});
    return refusal ? refusal->status : 0;
  };
  EXPECT_EQ(status({{"host", "localhost:1"}}), 0);
  EXPECT_EQ(status({{"host", "localhost:1"}, {"origin", "http://localhost:1"}}), 0);
  EXPECT_EQ(status({{"host", "localhost:1"}, {"sec-fetch-site", "same-origin"}}), 0);
  EXPECT_EQ(status({{"host", "evil.example"}}), 421);
  EXPECT_EQ(status({{"host", "evil.example"}, {"origin", "http://evil.example"}}), 421);
  for (const char* origin : {"null", "http://evil.example", "https://localhost:1", "http://localhost",
                             "http://localhost:2", "http://localhost:1.evil.example", "*", ""})
    EXPECT_EQ(status({{"host", "localhost:1"}, {"origin", origin}}), 403) << origin;
  for (const char* site : {"cross-site", "same-site", "", "nonsense"})
    EXPECT_EQ(status({{"host", "localhost:1"}, {"sec-fetch-site", site}}), 403) << site;
}

}  // namespace
}  // namespace caisson::service::http
