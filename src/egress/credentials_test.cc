#include "egress/credentials.h"

#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

constexpr char kPlaceholder[] = "caisson-placeholder-0123456789abcdef";

BoundSecret Bound() {
  BoundSecret bound;
  bound.name = "api";
  bound.host = "api.example";
  bound.path = "/v1/";
  bound.header = "authorization";
  bound.placeholder = kPlaceholder;
  bound.secret = "s3cret";
  return bound;
}

Credentials Of(const BoundSecret& bound) {
  Credentials credentials;
  credentials.Add(bound);
  return credentials;
}

std::string Head(const std::string& line, const std::string& field = "") {
  return line + " HTTP/1.1\r\nHost: api.example\r\n" + (field.empty() ? "" : field + "\r\n") + "\r\n";
}

TEST(Credentials, PutsTheSecretWhereItIsBound) {
  const Credentials credentials = Of(Bound());
  const auto edited =
      credentials.Edit("api.example", 443, Head("GET /v1/x", std::string("AUTHORIZATION:\tBearer ") + kPlaceholder));
  EXPECT_EQ(edited.status, 0) << edited.reason;
  EXPECT_EQ(edited.head, Head("GET /v1/x", "AUTHORIZATION:\tBearer s3cret"));
  EXPECT_EQ(edited.used, "api");
  const auto plain = credentials.Edit("api.example", 443, Head("GET /v2/x", "Authorization: Bearer own"));
  EXPECT_EQ(plain.head, Head("GET /v2/x", "Authorization: Bearer own"));
  EXPECT_EQ(plain.used, "");
}

TEST(Credentials, PutsTheSecretIntoBasicAuthentication) {
  // "user:caisson-placeholder-0123456789abcdef" and "user:s3cret".
  const auto edited = Of(Bound()).Edit(
      "api.example", 443,
      Head("GET /v1/x", "Authorization: Basic dXNlcjpjYWlzc29uLXBsYWNlaG9sZGVyLTAxMjM0NTY3ODlhYmNkZWY="));
  EXPECT_EQ(edited.head, Head("GET /v1/x", "Authorization: Basic dXNlcjpzM2NyZXQ="));
}

TEST(Credentials, RefusesThePlaceholderElsewhere) {
  const Credentials credentials = Of(Bound());
  const std::string mentioned(kPlaceholder);
  for (const std::string& head :
       {Head("GET /v2/x", "Authorization: Bearer " + mentioned), Head("GET /v1/x", "X-Copy: " + mentioned),
        Head("GET /v1/x?token=" + mentioned), Head("GET /v1/x?token=caisson%2dplaceholder-0123456789abcdef"),
        Head("TRACE /v1/x", "Authorization: " + mentioned)}) {
    const auto edited = credentials.Edit("api.example", 443, head);
    EXPECT_EQ(edited.status, 403) << head;
    EXPECT_EQ(edited.head.find("s3cret"), std::string::npos);
  }
  EXPECT_TRUE(credentials.IsMentioned(Head("GET /", "Cookie: a=" + mentioned)));
  EXPECT_TRUE(credentials.IsMentioned(
      Head("GET /", "Authorization: Basic dXNlcjpjYWlzc29uLXBsYWNlaG9sZGVyLTAxMjM0NTY3ODlhYmNkZWY=")));
  EXPECT_FALSE(credentials.IsMentioned(Head("GET /", "Cookie: a=b")));
}

TEST(Credentials, RefusesPathsThatServersReadDifferently) {
  const Credentials credentials = Of(Bound());
  for (const char* path : {"/v1/../v2/x", "/v1/%2e%2e/v2", "/v1/..%2fv2", "/v1//x", "/v1/./x", "/v1/..;a/v2", "/v1/%zz",
                           "/v1/\\..\\x", "/v1/%00", "/v1/.."})
    EXPECT_EQ(credentials.Edit("api.example", 443, Head(std::string("GET ") + path)).status, 400) << path;
  EXPECT_EQ(credentials.Edit("api.example", 443, Head("GET http://api.example/v1/")).status, 400);
  EXPECT_EQ(credentials.Edit("api.example", 443, Head("GET /v1/a%20b/..c/.d?x=../y//z")).status, 0);
}

TEST(Credentials, RulesAboutMethodsPathsAndGit) {
  BoundSecret bound = Bound();
  bound.methods = {"GET", "POST"};
  bound.paths = {"/v1/", "/git/"};
  bound.git_read_only = true;
  const Credentials credentials = Of(bound);
  const auto reason = [&](const std::string& line) {
    return std::string(credentials.Edit("api.example", 443, Head(line)).reason);
  };
  EXPECT_EQ(reason("GET /v1/x"), "");
  EXPECT_EQ(reason("DELETE /v1/x"), "method_not_allowed");
  EXPECT_EQ(reason("GET /v3/x"), "path_not_allowed");
  EXPECT_EQ(reason("GET /git/a/info/refs?service=git-upload-pack"), "");
  EXPECT_EQ(reason("POST /git/a/git-upload-pack"), "");
  EXPECT_EQ(reason("GET /git/a/info/refs?service=git-receive-pack"), "git_write");
  EXPECT_EQ(reason("POST /git/a/git-receive-pack"), "git_write");
  EXPECT_EQ(reason("POST /git/a/git-receive-p%61ck"), "git_write");
}

TEST(Credentials, AddsAHeaderThatTheProgramDoesNotSend) {
  BoundSecret bound = Bound();
  bound.value = "Bearer {secret}";
  const Credentials credentials = Of(bound);
  EXPECT_EQ(credentials.Edit("api.example", 443, Head("GET /v1/x")).head,
            Head("GET /v1/x", "authorization: Bearer s3cret"));
  EXPECT_EQ(credentials.Edit("api.example", 443, Head("GET /v2/x")).head, Head("GET /v2/x"));
  EXPECT_EQ(credentials.Edit("api.example", 443, Head("GET /v1/x", "Authorization: own")).head,
            Head("GET /v1/x", "Authorization: own"));
}

TEST(Credentials, ReadsSecretsAsFilesHaveThem) {
  EXPECT_EQ(*CleanSecret("abc\r\n"), "abc");
  EXPECT_FALSE(CleanSecret("\n"));
  EXPECT_FALSE(CleanSecret("a\nb"));
  EXPECT_FALSE(CleanSecret(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace caisson::egress
