// The parts of the API, without a service behind them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "service/http/problem.h"
#include "service/http/routes.h"
#include "service/http/schemas.h"
#include "service/http/target.h"

namespace caisson::service::http {
namespace {

std::string RouteOf(const char* method, const char* path) {
  const Match match = FindRoute(method, path);
  return match.route == nullptr ? "" : std::string(match.route->path);
}

TEST(Routes, AreFound) {
  EXPECT_EQ(RouteOf("POST", "/v1/jobs"), "/v1/jobs");
  EXPECT_EQ(RouteOf("POST", "/v1/jobs:batch"), "/v1/jobs:batch");
  EXPECT_EQ(RouteOf("GET", "/v1/jobs/a1"), "/v1/jobs/{id}");
  EXPECT_EQ(RouteOf("POST", "/v1/jobs/a1:cancel"), "/v1/jobs/{id}:cancel");
  EXPECT_EQ(RouteOf("GET", "/v1/jobs/a1/artifacts/%2Fscratch%2Fx"), "/v1/jobs/{id}/artifacts/{path}");
  EXPECT_EQ(FindRoute("GET", "/v1/jobs/a%2D1/artifacts/%2Fscratch%2Fa%20b").path,
            (std::vector<std::string>{"a-1", "/scratch/a b"}));
}

TEST(Routes, NothingElseIs) {
  for (const char* path : {"/", "", "/v1", "/v1/jobs/", "/v1/jobs//", "//v1/jobs", "/v1/jobs/a/", "/v1/jobs/a:b",
                           "/v1/jobs/:cancel", "/v1/jobs/%2F", "/v1/jobs/a%00", "/v1/jobs/%ff", "/v1/jobs/a/artifacts",
                           "/v1/jobs/a/artifacts/", "/v1/jobs/a/artifacts/%00", "/v1/jobs/a/nothing", "/healthz/x"})
    EXPECT_EQ(RouteOf("GET", path), "") << path;
  EXPECT_EQ(FindRoute("PUT", "/v1/dlq/a").methods, (std::vector<std::string>{"GET", "DELETE"}));
}

// The other direction is checked against a running service (tests/service/openapi_test.py).
TEST(Routes, AreAllDescribed) {
  const std::string text(FindSchema("openapi.yaml"));
  for (const Route& route : Routes()) {
    const size_t at = text.find("\n  " + std::string(route.path) + ":");
    ASSERT_NE(at, std::string::npos) << route.path;
    if (route.path.find(".schema.json") != std::string_view::npos) continue;
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
    const size_t end = text.find("\n  /", at + 1);
    EXPECT_LT(text.find("\n    " + method + ":", at), end) << route.method << " " << route.path;
    for (const std::string_view name : route.query) {
      const std::string part = text.substr(at, end - at);
      std::string capital(name);
      capital[0] = static_cast<char>(capital[0] - 'a' + 'A');
      EXPECT_TRUE(part.find("name: " + std::string(name) + "\n") != std::string::npos ||
                  part.find("{name: " + std::string(name) + ",") != std::string::npos ||
                  part.find("parameters/" + capital + "\"") != std::string::npos)
          << route.path << " " << name;
    }
  }
}

TEST(Query, IsTakenStrictly) {
  const auto query = Query::Parse("a=1&b=x%20y+z&c", {"a", "b", "c"});
  ASSERT_TRUE(query);
  EXPECT_EQ(*query->Number("a", 0, 0, 9), 1);
  EXPECT_EQ(*query->Text("b"), "x y z");
  EXPECT_EQ(*query->Text("c"), "");
  EXPECT_EQ(query->Text("d"), std::nullopt);
  for (const char* bad : {"d=1", "a=1&a=2", "a=%zz", "a=%", "a=%ff", "a=%00", "a=1&&b=2", "="})
    EXPECT_FALSE(Query::Parse(bad, {"a", "b"})) << bad;
  for (const char* bad : {"a=", "a=-1", "a=10", "a=x", "a=1.0", "a=+1"})
    EXPECT_FALSE(Query::Parse(bad, {"a"})->Number("a", 0, 0, 9)) << bad;
}

TEST(Problem, NamesTheField) {
  const auto field = [](const std::string& message) {
    return ProblemDocument(Error::Invalid(message)).value("field", "");
  };
  EXPECT_EQ(field("limits.cpu: expected a number"), "limits.cpu");
  EXPECT_EQ(field("checks[1].argv[0]: is empty"), "checks[1].argv[0]");
  EXPECT_EQ(field("source.files[\"a: b\"]: the file name is odd"), "source.files[\"a: b\"]");
  EXPECT_EQ(field("the request: is odd"), "");
  EXPECT_EQ(field("odd"), "");
}

TEST(Problem, OurOwnFaultsAreNotTold) {
  const Response response = Problem(Error::System(5, "open /var/lib/caisson/secret"));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body.find("secret"), std::string::npos);
  EXPECT_NE(response.fault.find("secret"), std::string::npos);
}

TEST(Problem, IsUtf8WhateverItQuotes) {
  EXPECT_NO_THROW(static_cast<void>(nlohmann::json::parse(Problem(400, "a \xff b").body)));
}

}  // namespace
}  // namespace caisson::service::http
