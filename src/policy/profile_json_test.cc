#include "policy/profile_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/profiles.h"

namespace caisson::policy {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using support::OnTop;

struct Extended {
  const char* parent;
  const char* yaml;
};

class RoundTripTest : public testing::TestWithParam<Extended> {};

TEST_P(RoundTripTest, ShownIsRead) {
  const Profile profile = OnTop(GetParam().yaml, GetParam().parent);
  const std::string text = ToYaml(profile);
  const Result<YamlNode> document = ReadYaml(text, "shown");
  ASSERT_TRUE(document) << document.error().message << "\n" << text;
  const Result<Profile> again = ReadProfile(*document, "shown", *FindBuiltIn(GetParam().parent));
  ASSERT_TRUE(again) << again.error().message << "\n" << text;
  EXPECT_EQ(json(ToJson(*again)), json(ToJson(profile)));
  EXPECT_EQ(ToYaml(*again), text);
}

constexpr char kEverything[] = R"(
description: "quoted \"twice\", 検証: #no comment"
strength: microvm
namespaces: []
system_paths: ["/opt/with blank", "/opt/: colon"]
etc_paths: []
devices: ["null"]
proc: {subset: pids, masked_files: ["- x"]}
mounts: [{source: "/srv/#1", target: "/da ta", access: rw}, {source: /srv, target: /b}]
writable_paths: [/scratch]
seccomp: {filter: none, allow: [ptrace], deny: [bpf]}
capabilities: [CAP_KILL]
limits: {cpu: 0.011, memory_bytes: 1125899906842624, command_timeout_ms: 1}
network: {mode: allowlist, allow: ["*.example.org:443"]}
probes: [{write: "/var/a b/: c", why: "say: \"so\""}, {reason: syscall.numa, why: "null"}]
ignored_writes: ["null", "true", "~", "1"]
project: {root_path: /, allowed_paths: [{path: "a: b", access: rw}], denied_paths: ["*", "&x"]}
)";

INSTANTIATE_TEST_SUITE_P(
    Profiles, RoundTripTest,
    testing::Values(Extended{"balanced", ""}, Extended{"strict", ""}, Extended{"session", ""},
                    Extended{"balanced", kEverything}, Extended{"strict", kEverything},
                    // Names that YAML takes for values, and values that no terminal should print.
                    Extended{"balanced", "environment: {\"NULL\": a, \"null\": b, \"true\": c, \"y\": d, \"No\": e}\n"},
                    Extended{"balanced",
                             "environment: {A: \"\\e[2J\\x7f\\u009b\\u202e\\n\\t\\\"\", B: \"\\U0001F600\"}\n"},
                    // A removed variable stays removed.
                    Extended{"balanced", "environment: {SHELL: null, HOME: ~, PATH: \"\"}\n"},
                    Extended{"session", "description: \"\"\nproject: {root_path: /srv}\n"}));

TEST(ProfileJsonTest, ShownTextIsFitForATerminal) {
  const std::string text = ToYaml(OnTop("environment: {A: \"\\x7f\\u009b31m\\u202e\"}\n"));
  EXPECT_NE(text.find(R"("\u007f\u009b31m\u202e")"), std::string::npos) << text;
}

TEST(ProfileJsonTest, BuiltInsExtendNothing) {
  for (const Profile& profile : BuiltInProfiles()) EXPECT_FALSE(ToJson(profile).contains("extends")) << profile.name;
  EXPECT_EQ(ToJson(OnTop("", "strict"))["extends"], "strict");
}

TEST(CompareTest, NamesEachPlace) {
  const Profile& balanced = *FindBuiltIn("balanced");
  EXPECT_TRUE(Compare(ToJson(balanced), ToJson(balanced)).empty());
  Profile other = balanced;
  other.limits.processes = 1;
  other.project = ProjectPaths{"/srv", {}, {}};
  other.environment.clear();
  other.environment.emplace_back("HOME", "/");
  const std::vector<Difference> found = Compare(ToJson(balanced), ToJson(other));
  std::map<std::string, std::pair<std::string, std::string>> by_path;
  for (const Difference& one : found) by_path[one.path] = {one.left, one.right};
  EXPECT_EQ(by_path.size(), found.size());
  EXPECT_EQ(by_path["limits.processes"], std::pair(std::string("256"), std::string("1")));
  EXPECT_EQ(by_path["project.root_path"], std::pair(std::string("(absent)"), std::string("\"/srv\"")));
  EXPECT_EQ(by_path["environment.HOME"], std::pair(std::string("\"/scratch\""), std::string("\"/\"")));
  EXPECT_EQ(by_path["environment.USER"], std::pair(std::string("\"user\""), std::string("(absent)")));
  EXPECT_EQ(by_path.count("name"), 0u);
}

TEST(CompareTest, TellsTypesApart) {
  const auto differ = [](const ordered_json& left, const ordered_json& right) {
    const std::vector<Difference> found = Compare({{"k", left}}, {{"k", right}});
    return found.empty() ? "" : found[0].path + " " + found[0].left + " " + found[0].right;
  };
  EXPECT_EQ(differ({{"a", 1}}, 1), "k {\"a\":1} 1");
  EXPECT_EQ(differ(ordered_json::array({1}), ordered_json::array({2})), "k [1] [2]");
  EXPECT_EQ(differ("1", 1), "k \"1\" 1");
  EXPECT_EQ(differ({{"a", 1}}, {{"a", 1}}), "");
}

}  // namespace
}  // namespace caisson::policy
