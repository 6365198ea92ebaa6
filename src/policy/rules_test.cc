// The corpus in tests/schemas/corpus/policy says what is refused and where; these tests show what accepted rules mean.
#include "policy/rules.h"

#include <gtest/gtest.h>

namespace caisson::policy {
namespace {

Rules MustRead(const std::string& body) {
  const Result<Rules> rules = ReadRules("version: 1\nkind: policy\nname: n\nlock_owner: us\n" + body, "f");
  EXPECT_TRUE(rules) << rules.error().message;
  return rules ? *rules : Rules();
}

RiskRule RuleWhen(const std::string& when) {
  return MustRead("risk: [{id: a, strength: gvisor, why: x, when: " + when + "}]").risk.at(0);
}

TEST(RulesTest, EveryConditionMustHold) {
  RequestFacts facts;
  facts.source = "files";
  facts.language = "python";
  facts.labels = {{"risk", "high"}, {"team", "a"}};
  facts.asks = {Ask::kNetwork, Ask::kInstall};
  const std::pair<const char*, bool> cases[] = {
      {"{}", true},
      {"{sources: [files]}", true},
      {"{sources: [path, files]}", true},
      {"{sources: [path]}", false},
      {"{languages: [c, python]}", true},
      {"{languages: [c]}", false},
      {"{asks: [install]}", true},
      {"{asks: [rw_mount, network]}", true},  // any of them
      {"{asks: [rw_mount, override]}", false},
      {"{labels: {risk: high}}", true},
      {"{labels: {risk: high, team: a}}", true},
      {"{labels: {risk: high, team: b}}", false},  // all of them
      {"{labels: {risk: High}}", false},
      {"{labels: {owner: a}}", false},
      {"{labels: {risk: \"\"}}", false},
      {"{sources: [files], languages: [python], asks: [network], labels: {team: a}}", true},
      {"{sources: [files], languages: [python], asks: [network], labels: {team: b}}", false},
      {"{sources: [path], languages: [python], asks: [network], labels: {team: a}}", false},
  };
  for (const auto& [when, holds] : cases) EXPECT_EQ(RuleWhen(when).Matches(facts), holds) << when;
  EXPECT_FALSE(RuleWhen("{asks: [network]}").Matches(RequestFacts()));
  EXPECT_TRUE(RuleWhen("{}").Matches(RequestFacts()));
}

TEST(RulesTest, ReadOverridesWhole) {
  const Rules rules = MustRead(R"(risk: []
overrides:
  - id: one
    role: builder
    reason: because
    granted_by: us
    expires: 1970-01-01T01:00:10+01:00
    grant: {raise_limit: {memory_bytes: 8GiB, cpu: 1.5}}
  - {id: two, request: r1, reason: x, granted_by: y, expires: 2030-01-31T12:00:00Z,
     grant: {allow_syscall: [bpf, ptrace]}}
)");
  ASSERT_EQ(rules.overrides.size(), 4u);  // one for each thing granted
  EXPECT_EQ(rules.overrides[0].expires_at, 10);
  EXPECT_EQ(Describe(rules.overrides[0].grant), "memory_bytes to 8589934592");
  EXPECT_EQ(Describe(rules.overrides[1].grant), "cpu to 1500");
  EXPECT_EQ(rules.overrides[1].id, "one");
  EXPECT_EQ(rules.overrides[3].request, "r1");
  EXPECT_EQ(Describe(rules.overrides[3].grant), "ptrace");
}

TEST(RulesTest, AFileMustSayThatItTrusts) {
  EXPECT_FALSE(MustRead("risk: []").command_line_trusted);
  EXPECT_TRUE(MustRead("risk: []\ncommand_line: trusted").command_line_trusted);
  EXPECT_TRUE(BuiltInRules().command_line_trusted);
  EXPECT_EQ(MustRead("risk: []\nstrengths: {gvisor: mine}").strength_reasons[static_cast<size_t>(Strength::kGvisor)],
            "mine");
  EXPECT_EQ(MustRead("risk: []").strength_reasons, BuiltInRules().strength_reasons);
}

TEST(RulesTest, KnowsItsOwnKind) {
  EXPECT_TRUE(IsRulesDocument("kind: policy\nnonsense: true"));
  for (const char* text : {"kind: profile", "[kind, policy]", "", "kind: [policy]", "kind: policy\nkind: policy"})
    EXPECT_FALSE(IsRulesDocument(text)) << text;
  EXPECT_EQ(LoadRules("", "/nonexistent")->name, BuiltInRules().name);
  EXPECT_FALSE(LoadRules("", "/proc/self/mem")) << "installed rules that cannot be read are not the built-in ones";
  EXPECT_FALSE(LoadRules("/nonexistent"));
}

TEST(RulesTest, KnowsLanguagesByTheirPrograms) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {{{"/usr/bin/python3.11", "-c", ""}, "python"},
                                                                    {{"gcc-12"}, "c"},
                                                                    {{"g++"}, "c++"},
                                                                    {{"clang++-14"}, "c++"},
                                                                    {{"clang"}, "c"},
                                                                    {{"sh"}, "shell"},
                                                                    {{"node"}, "javascript"},
                                                                    {{"pythonic"}, "other"},
                                                                    {{"golint"}, "other"},
                                                                    {{}, "other"},
                                                                    {{""}, "other"}};
  for (const auto& [argv, language] : cases) EXPECT_EQ(LanguageOf(argv), language) << (argv.empty() ? "" : argv[0]);
}

TEST(RulesTest, KnowsInstallSteps) {
  for (const std::vector<std::string>& argv :
       std::vector<std::vector<std::string>>{{"pip", "install", "x"},
                                             {"/usr/bin/pip3", "install", "."},
                                             {"npm", "ci"},
                                             {"python3", "-m", "pip", "install", "x"},
                                             {"apt-get", "-y", "install"}})
    EXPECT_TRUE(IsInstallStep("run", argv)) << argv[0];
  for (const std::vector<std::string>& argv :
       std::vector<std::vector<std::string>>{{}, {"pip", "list"}, {"npm", "test"}, {"python3", "install"}, {"install"}})
    EXPECT_FALSE(IsInstallStep("run", argv));
  EXPECT_TRUE(IsInstallStep("install", {"true"}));
}

TEST(RulesTest, BuiltInOnesGrantNothingAndSayWhy) {
  EXPECT_TRUE(BuiltInRules().overrides.empty());
  for (const RiskRule& rule : BuiltInRules().risk) EXPECT_FALSE(rule.why.empty()) << rule.id;
}

}  // namespace
}  // namespace caisson::policy
