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
  }
  std::string Refused() {
    const Status status = Refusal(Decide(input_), *input_.profile);
    return status ? "" : status.error().message;
  }
  DecisionInput input_;
};

TEST_F(DecisionTest, PlainCodeNeedsNobody) {
  const Decision decision = Decide(input_);
  ASSERT_EQ(decision.rules.size(), 1u);
  EXPECT_EQ(decision.rules[0].id, "code");
  EXPECT_TRUE(decision.approvals.empty());
  EXPECT_EQ(decision.tier_reason, BuiltInRules().tier_reasons[0]);
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
    input_.own_asks = {ask};  // whoever may approve asked himself
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
  // A rule that no ask triggers is nobody's own.
  rules.risk[0].asks.clear();
  EXPECT_NE(Refused(), "");
}

TEST_F(DecisionTest, TheHighestTierHolds) {
  input_.facts.labels = {{"risk", "hostile"}};
  EXPECT_EQ(Decide(input_).required_tier, Tier::kMicroVm);
  EXPECT_NE(Refused().find("the rule hostile"), std::string::npos) << Refused();
  input_.runtime_tier = Tier::kGvisor;
  EXPECT_NE(Refused(), "");
  input_.runtime_tier = Tier::kMicroVm;
  EXPECT_EQ(Refused(), "");
  input_.facts.labels.clear();
  input_.runtime_tier = Tier::kNative;
  input_.profile = FindBuiltIn("strict");
  EXPECT_NE(Refused().find("the profile strict needs the tier gvisor"), std::string::npos) << Refused();
  EXPECT_EQ(Refusal(Decide(input_), *input_.profile).error().kind, ErrorKind::kDenied);
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
  EXPECT_EQ(record["required_tier"], "native");
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
