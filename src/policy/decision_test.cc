#include "policy/decision.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace caisson::policy {
namespace {

class DecisionTest : public testing::Test {
 protected:
  DecisionTest() {
    input_.rules = &BuiltInRules();
    input_.profile = FindBuiltIn("balanced");
    input_.role = "operator";
    input_.approver = "uid 1";
    input_.runtimes = {Runtime("native", Strength::kNative)};
  }
  // One that can do everything.
  static RuntimeDescription Runtime(const std::string& name, Strength strength) {
    RuntimeDescription runtime;
    runtime.name = name;
    runtime.strength = strength;
    for (size_t i = 0; i < kAbilityNames.size(); ++i) runtime.abilities.insert(static_cast<Ability>(i));
    runtime.limits.fill(LimitSupport::kEnforced);
    return runtime;
  }
  std::string Refused() {
    const Status status = Refusal(Decide(input_));
    return status ? "" : status.error().message;
  }
  DecisionInput input_;
};

TEST_F(DecisionTest, PlainCodeNeedsNobody) {
  const Decision decision = Decide(input_);
  ASSERT_EQ(decision.rules.size(), 1u);
  EXPECT_EQ(decision.rules[0].id, "code");
  EXPECT_TRUE(decision.approvals.empty());
  EXPECT_EQ(decision.strength_reason, BuiltInRules().strength_reasons[0]);
  EXPECT_EQ(Refused(), "");
}

TEST_F(DecisionTest, EveryAskNeedsItsApproval) {
  const std::pair<Ask, const char*> cases[] = {{Ask::kNetwork, "network"},
                                               {Ask::kWritableMount, "host-writes"},
                                               {Ask::kOverride, "overrides"},
                                               {Ask::kInstall, "install"}};
  for (const auto& [ask, rule] : cases) {
    input_.facts.asks = {ask};
    input_.approved_rules.clear();
    input_.own_asks.clear();
    EXPECT_NE(Refused().find(std::string("--approve ") + rule), std::string::npos) << rule << ": " << Refused();
    input_.approved_rules = {"code", "other"};
    EXPECT_NE(Refused(), "") << rule;
    input_.approved_rules = {rule};
    EXPECT_EQ(Refused(), "") << rule;
    EXPECT_EQ(Decide(input_).approvals.at(0).given_by, "uid 1");
    input_.approved_rules.clear();
    input_.own_asks = {ask};  // the approver is also the one that asks
    EXPECT_EQ(Refused(), "") << rule;
  }
}

TEST_F(DecisionTest, OneApprovalIsNotAnother) {
  input_.facts.asks = {Ask::kNetwork, Ask::kInstall};
  input_.approved_rules = {"network"};
  input_.own_asks = {};
  EXPECT_NE(Refused().find("--approve install"), std::string::npos);
  input_.own_asks = {Ask::kInstall};
  EXPECT_EQ(Refused(), "");
}

TEST_F(DecisionTest, OwnAsksDoNotCoverThoseOfOthers) {
  Rules rules = BuiltInRules();
  rules.risk = {{}};
  rules.risk[0].id = "both";
  rules.risk[0].asks = {Ask::kNetwork, Ask::kOverride};
  rules.risk[0].approval = "security";
  input_.rules = &rules;
  input_.facts.asks = {Ask::kNetwork, Ask::kOverride};
  input_.own_asks = {Ask::kNetwork};
  EXPECT_NE(Refused(), "");
  input_.own_asks = {Ask::kNetwork, Ask::kOverride};
  EXPECT_EQ(Refused(), "");
  // A rule that no ask triggers is not approved by asking.
  rules.risk[0].asks.clear();
  EXPECT_NE(Refused(), "");
}

TEST_F(DecisionTest, TheHighestStrengthHolds) {
  input_.facts.labels = {{"risk", "hostile"}};
  EXPECT_EQ(Decide(input_).required_strength, Strength::kMicroVm);
  EXPECT_NE(Refused().find("the rule hostile"), std::string::npos) << Refused();
  input_.runtimes = {Runtime("gvisor", Strength::kGvisor)};
  EXPECT_NE(Refused(), "");
  input_.runtimes = {Runtime("microvm", Strength::kMicroVm)};
  EXPECT_EQ(Refused(), "");
  input_.facts.labels.clear();
  input_.runtimes = {Runtime("native", Strength::kNative)};
  input_.profile = FindBuiltIn("strict");
  EXPECT_NE(Refused().find("the profile strict needs the strength gvisor and the runtime native gives native"),
            std::string::npos)
      << Refused();
  EXPECT_EQ(Refusal(Decide(input_)).error().kind, ErrorKind::kDenied);
}

TEST_F(DecisionTest, TheWeakestRuntimeThatSufficesIsChosen) {
  input_.runtimes = {Runtime("microvm", Strength::kMicroVm), Runtime("native", Strength::kNative),
                     Runtime("gvisor", Strength::kGvisor)};
  EXPECT_EQ(Decide(input_).runtime, "native");
  EXPECT_EQ(Decide(input_).given_strength, Strength::kNative);
  input_.profile = FindBuiltIn("strict");
  EXPECT_EQ(Decide(input_).runtime, "gvisor");
  input_.runtimes[2].abilities.erase(Ability::kEgress);
  input_.needs = {{Ability::kEgress, "network"}};
  EXPECT_EQ(Decide(input_).runtime, "microvm");
  EXPECT_EQ(Refused(), "");
  input_.runtimes[0].abilities.erase(Ability::kEgress);
  EXPECT_EQ(Refused(), "network: the runtime gvisor lacks the ability egress; use one that has it");
}

TEST_F(DecisionTest, ARuntimeAskedForByNameMayOnlyStrengthen) {
  input_.runtimes.push_back(Runtime("gvisor", Strength::kGvisor));
  input_.runtime = "gvisor";
  EXPECT_EQ(Decide(input_).runtime, "gvisor");
  input_.runtime = "native";
  input_.profile = FindBuiltIn("strict");
  EXPECT_NE(Refused().find("needs the strength gvisor and the runtime native gives native"), std::string::npos)
      << Refused();
  input_.runtime = "microvm";
  EXPECT_EQ(Refused(), "isolation: the runtime microvm is not part of this program, which has native, gvisor");
  input_.runtimes.clear();
  input_.runtime.clear();
  EXPECT_EQ(Refused(), "isolation: there is no runtime");
}

TEST_F(DecisionTest, WhatCannotBeObservedMustBeAccepted) {
  input_.runtimes[0].abilities.erase(Ability::kObservesWrites);
  EXPECT_NE(Refused().find("lacks the ability observe_writes"), std::string::npos) << Refused();
  Profile profile = *FindBuiltIn("balanced");
  profile.allow_degraded.emplace_back("observe_writes");
  input_.profile = &profile;
  EXPECT_EQ(Refused(), "");
}

TEST_F(DecisionTest, EveryLimitMustHoldOrBeWatchedWhereThatIsAccepted) {
  Profile profile = *FindBuiltIn("balanced");
  input_.profile = &profile;
  input_.runtimes[0].limits[3] = LimitSupport::kWatched;
  EXPECT_EQ(Refused(), "");  // balanced accepts it
  profile.allow_degraded.clear();
  EXPECT_NE(Refused().find("limits.memory_bytes: the runtime native only watches it"), std::string::npos) << Refused();
  input_.runtimes[0].limits[3] = LimitSupport::kLacks;
  profile.allow_degraded = {"cgroup"};
  EXPECT_NE(Refused().find("limits.memory_bytes: the runtime native has no such limit"), std::string::npos);
  Limits without = profile.limits;
  input_.limits = &without;
  without.memory_bytes = kNoLimit;
  EXPECT_EQ(Refused(), "");
}

TEST_F(DecisionTest, IsRecordedWhole) {
  input_.facts.asks = {Ask::kOverride};
  Override used;
  used.id = "o";
  used.grant = WritePath{"/srv"};
  used.reason = "why";
  used.expires = "2030-01-01T00:00:00Z";
  used.granted_by = "us";
  input_.overrides = {used};
  const nlohmann::ordered_json record = ToJson(Decide(input_));
  EXPECT_EQ(record["role"], "operator");
  EXPECT_EQ(record["required_strength"], "native");
  EXPECT_EQ(record["rules"].size(), 2u);
  EXPECT_EQ(record["approvals"][0]["approval"], "security");
  EXPECT_TRUE(record["approvals"][0]["given_by"].is_null());
  EXPECT_EQ(record["overrides"][0], (nlohmann::ordered_json{{"id", "o"},
                                                            {"kind", "write_path"},
                                                            {"grant", "/srv"},
                                                            {"reason", "why"},
                                                            {"expires", "2030-01-01T00:00:00Z"},
                                                            {"granted_by", "us"}}));
}

}  // namespace
}  // namespace caisson::policy
