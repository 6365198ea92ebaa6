#include "policy/filter_source.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace caisson::policy {
namespace {

using nlohmann::json;

json MustMake(const SeccompRules& rules) {
  const Result<json> document = FilterDocument(rules);
  EXPECT_TRUE(document) << document.error().message;
  return document ? *document : json();
}

// The rules that name a call, in their order.
std::vector<json> RulesFor(const json& document, const std::string& name) {
  std::vector<json> found;
  for (const json& rule : document["syscalls"]) {
    for (const json& candidate : rule["names"]) {
      if (candidate == name) found.push_back(rule);
    }
  }
  return found;
}

TEST(FilterSourceTest, WithoutChangesIsTheFileItself) {
  EXPECT_EQ(MustMake({"balanced", {}, {}}), json::parse(FilterText("balanced")));
  EXPECT_TRUE(FilterText("none").empty());
  EXPECT_FALSE(FilterDocument({"none", {}, {}}));
  EXPECT_FALSE(FilterDocument({"../balanced", {}, {}}));
}

TEST(FilterSourceTest, TheExtendingFileComesFirstAndReplaces) {
  const json strict = MustMake({"strict", {}, {}}), own = json::parse(FilterText("strict"));
  ASSERT_TRUE(own.contains("x-caisson-extends"));
  EXPECT_FALSE(strict.contains("x-caisson-extends"));
  EXPECT_EQ(strict["defaultErrnoRet"], json::parse(FilterText("balanced"))["defaultErrnoRet"]);
  for (const json& rule : own["syscalls"]) {
    for (const json& name : rule["names"]) EXPECT_EQ(RulesFor(strict, name), RulesFor(own, name)) << name;
  }
  EXPECT_EQ(RulesFor(strict, "ptrace"), RulesFor(MustMake({"balanced", {}, {}}), "ptrace"));
}

TEST(FilterSourceTest, TheProfileDecidesAboutTheCallsItNames) {
  const json plain = MustMake({"balanced", {}, {}});
  // Calls that the file allows, refuses, observes with conditions, and does not list.
  for (const char* name : {"read", "ptrace", "openat", "io_uring_setup"}) {
    const json allowed = MustMake({"balanced", {name}, {}});
    ASSERT_EQ(RulesFor(allowed, name).size(), 1u) << name;
    EXPECT_EQ(RulesFor(allowed, name)[0]["action"], "SCMP_ACT_ALLOW");
    EXPECT_FALSE(RulesFor(allowed, name)[0].contains("args"));
    const json denied = MustMake({"balanced", {}, {name}});
    ASSERT_EQ(RulesFor(denied, name).size(), 1u) << name;
    EXPECT_EQ(RulesFor(denied, name)[0]["action"], "SCMP_ACT_NOTIFY");
    EXPECT_EQ(RulesFor(denied, name)[0]["x-caisson"]["reason"], "syscall.profile");
    // Every other call keeps its rules.
    for (const json& rule : plain["syscalls"]) {
      for (const json& other : rule["names"]) {
        if (other == name) continue;
        std::vector<json> before = RulesFor(plain, other), after = RulesFor(denied, other);
        for (json& one : before) one.erase("names");
        for (json& one : after) one.erase("names");
        EXPECT_EQ(before, after) << other;
      }
    }
  }
}

}  // namespace
}  // namespace caisson::policy
