#include "policy/destinations.h"

#include <gtest/gtest.h>

#include <set>

namespace caisson::policy {
namespace {

TEST(Destinations, EveryClassIsASetOfRules) {
  std::set<std::string> names;
  ASSERT_GE(BuiltInDestinations().size(), 6U);
  for (const DestinationClass& one : BuiltInDestinations()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    const std::vector<network::RuleText> rules = ExpandDestinations({"class:" + one.name});
    EXPECT_EQ(rules.size(), one.allow.size());
    EXPECT_TRUE(network::RuleSet::Make(rules, {})) << one.name;
  }
  for (const char* name :
       {"packages:pypi", "packages:npm", "packages:debian", "packages:crates", "packages:go", "source:github"})
    EXPECT_NE(FindDestinationClass(name), nullptr) << name;
  EXPECT_EQ(FindDestinationClass("packages"), nullptr);
}

TEST(Destinations, ExpandKeepsOtherRules) {
  const std::vector<network::RuleText> rules = ExpandDestinations({"a.example", "class:source:gitlab"});
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0].text, "a.example");
  EXPECT_EQ(rules[2].label, "class:source:gitlab (tcp://gitlab.com:22)");
}

TEST(Destinations, MistakesAreNamed) {
  const std::string head = "version: 1\nkind: destinations\n";
  const std::pair<std::string, const char*> cases[] = {
      {head + "classes: {a:b: {description: d, allow: [\"*.com\"]}}", "too wide"},
      {head + "classes: {ab: {description: d, allow: [a.example]}}", "no name of a class"},
      {head + "classes: {a:b: {description: d}}", "needs a description and hosts"},
      {head + "classes: {a:b: {description: d, allow: [a.example], deny: []}}", "deny"},
      {"version: 1\nkind: policy\nclasses: {a:b: {description: d, allow: [a.example]}}", "destinations"},
      {"version: 1\nkind: destinations\n", "needs kind and classes"},
  };
  for (const auto& [text, words] : cases) {
    const auto classes = ReadDestinations(text, "d.yaml");
    ASSERT_FALSE(classes) << text;
    EXPECT_NE(classes.error().message.find(words), std::string::npos) << classes.error().message;
  }
}

}  // namespace
}  // namespace caisson::policy
