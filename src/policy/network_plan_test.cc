#include "policy/network_plan.h"

#include <gtest/gtest.h>

namespace caisson::policy {
namespace {

NetworkRules Rules(std::vector<std::string> allow) {
  NetworkRules rules;
  rules.mode = NetworkMode::kAllowlist;
  rules.allow = std::move(allow);
  return rules;
}

TEST(NetworkPlan, NamesWhatASandboxNeeds) {
  const Result<NetworkPlan> plan = MakeNetworkPlan(Rules({"class:packages:pypi", "192.0.2.7:22", "192.0.2.7:5432"}));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->pool, 0xC6120000U);
  EXPECT_EQ(plan->pool_bits, 15);
  EXPECT_EQ(plan->addresses, std::vector<uint32_t>{0xC0000207U});
  EXPECT_EQ(plan->allow[0].text, "pypi.org");
  EXPECT_FALSE(MakeNetworkPlan(Rules({"tcp://example.org:443", "example.org"})));  // they disagree
}

TEST(NetworkPlan, CoversWhatIsNarrower) {
  const NetworkRules rules = Rules({"example.org", "*.example.net", "class:packages:pypi", "tcp://example.org:22"});
  for (const char* covered : {"example.org", "example.org:443", "a.example.net", "a.b.example.net", "*.b.example.net",
                              "*.example.net", "class:packages:pypi", "pypi.org", "tcp://example.org:22"})
    EXPECT_TRUE(Covers(rules, covered)) << covered;
  for (const char* wider : {"example.com", "a.example.org", "*.example.org", "example.net", "**.example.net",
                            "example.org:80", "tls://example.org:22", "class:packages:npm", "evilexample.net"})
    EXPECT_FALSE(Covers(rules, wider)) << wider;
  EXPECT_FALSE(Covers(Rules({}), "example.org"));
}

}  // namespace
}  // namespace caisson::policy
