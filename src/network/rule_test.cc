#include "network/rule.h"

#include <gtest/gtest.h>

#include "network/name.h"

namespace caisson::network {
namespace {

RuleSet Rules(const std::vector<std::string>& allow, const std::vector<std::string>& deny = {}) {
  std::vector<RuleText> allowed, denied;
  for (const std::string& text : allow) allowed.push_back({text, ""});
  for (const std::string& text : deny) denied.push_back({text, ""});
  Result<RuleSet> rules = RuleSet::Make(allowed, denied);
  EXPECT_TRUE(rules) << rules.error().message;
  return *std::move(rules);
}

Host Named(std::string_view text) {
  Result<Host> host = Host::Parse(text);
  EXPECT_TRUE(host) << text;
  return host ? *std::move(host) : Host();
}

bool Allows(const RuleSet& rules, std::string_view host, uint16_t port) {
  return rules.Decide(Named(host), port).allowed;
}

std::string FaultOf(std::string_view rule) {
  const Result<Rule> parsed = ParseAllowRule(rule);
  return parsed ? "" : parsed.error().message;
}

TEST(Name, HasOneSpelling) {
  EXPECT_EQ(*NormalizeName("Api.Allowed."), "api.allowed");
  EXPECT_EQ(*NormalizeName("_dmarc.a-b.example"), "_dmarc.a-b.example");
  EXPECT_EQ(*NormalizeName(std::string(63, 'a') + ".x"), std::string(63, 'a') + ".x");
  std::string longest;
  for (int i = 0; i < 126; ++i) longest += "a.";
  EXPECT_TRUE(NormalizeName(longest + "b"));  // 253 bytes
  for (const std::string& text :
       {std::string(),           std::string("."),     std::string("api.allowed.."), std::string(".api.allowed"),
        std::string("a..b"),     longest + "bc",       std::string(64, 'a') + ".x",  std::string("a b.x"),
        std::string("a\0.x", 4), std::string("-a.x"),  std::string("a-.x"),          std::string("a*.x"),
        std::string("1.2.3.4"),  std::string("127.1"), std::string("0x7f.1"),        std::string("2130706433"),
        std::string("x.0x7f"),   std::string("x.0x"),  std::string("a:b"),           std::string("a/b")})
    EXPECT_FALSE(NormalizeName(text)) << text;
}

TEST(Name, SuggestsPunycode) {
  const std::pair<const char*, const char*> cases[] = {
      {"bücher.example", "xn--bcher-kva.example"},
      {"münchen.de", "xn--mnchen-3ya.de"},
      {"例え.テスト", "xn--r8jz45g.xn--zckzah"},
      {"аррle.com", "xn--le-6kc8da.com"},
      {"☃.net", "xn--n3h.net"},
      {"пример.испытание", "xn--e1afmkfd.xn--80akhbyknj4f"},
  };
  for (const auto& [name, punycode] : cases) {
    const Result<std::string> refused = NormalizeName(name);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(punycode), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(NormalizeName("a\xff.x").error().message, "has bytes that are no letters, digits, '-' or '_'");
}

TEST(Rule, WildcardsAreAboutWholeLabels) {
  const RuleSet below = Rules({"*.x.org"});
  EXPECT_FALSE(Allows(below, "x.org", 443));
  EXPECT_TRUE(Allows(below, "a.x.org", 443));
  EXPECT_TRUE(Allows(below, "a.b.x.org", 443));
  EXPECT_FALSE(Allows(below, "evilx.org", 443));
  const RuleSet both = Rules({"**.x.org"});
  EXPECT_TRUE(Allows(both, "x.org", 443));
  EXPECT_TRUE(Allows(both, "a.b.x.org", 443));
  EXPECT_FALSE(Allows(both, "evilx.org", 443));
  EXPECT_FALSE(Allows(Rules({"api.x.org"}), "secret.api.x.org", 443));
}

TEST(Rule, WideRulesAreRefused) {
  for (const char* text :
       {"*", "**", "*.", "*.com", "**.com", "a.*.x", "*x", "*x.org", "***.x.org", "*.co.uk", "**.github.io",
        "*.s3.amazonaws.com", "*.1.2.3.4", "*.localhost", "localhost", "a.localhost"})
    EXPECT_NE(FaultOf(text), "") << text;
  EXPECT_EQ(FaultOf("user.github.io"), "");
  EXPECT_EQ(FaultOf("*.user.github.io"), "");
  EXPECT_TRUE(ParseDenyRule("*.com"));
}

TEST(Rule, PortAndProtocol) {
  const std::tuple<const char*, int, Protocol> cases[] = {
      {"x.org", 443, Protocol::kTls},
      {"x.org:443", 443, Protocol::kTls},
      {"x.org:80", 80, Protocol::kHttp},
      {"http://x.org", 80, Protocol::kHttp},
      {"http://x.org:8080", 8080, Protocol::kHttp},
      {"tls://x.org", 443, Protocol::kTls},
      {"tls://*.x.org:993", 993, Protocol::kTls},
      {"tcp://x.org:22", 22, Protocol::kTcp},
      {"192.0.2.7:5432", 5432, Protocol::kTcp},
      {"[2001:db8::7]:22", 22, Protocol::kTcp},
      {"http://192.0.2.7:80", 80, Protocol::kHttp},
      {"tcp://x.org:443", 443, Protocol::kTcp},
  };
  for (const auto& [text, port, protocol] : cases) {
    const Result<Rule> rule = ParseAllowRule(text);
    ASSERT_TRUE(rule) << text << " " << rule.error().message;
    EXPECT_EQ(rule->port, port) << text;
    EXPECT_EQ(*rule->protocol, protocol) << text;
  }
  for (const char* text : {"x.org:22",
                           "x.org:0",
                           "x.org:65536",
                           "x.org:",
                           "x.org:080",
                           "x.org:-1",
                           "tcp://x.org",
                           "https://x.org",
                           "ftp://x.org",
                           "x.org/path",
                           "user@x.org",
                           "192.0.2.7",
                           "tls://192.0.2.7:443",
                           "2001:db8::7",
                           "2001:db8::7:443",
                           "[2001:db8::7]",
                           "[1.2.3.4]:80",
                           "[fe80::1%25lo]:80",
                           "127.1:80",
                           "0x7f.1:80",
                           "0177.0.0.1:80",
                           "2130706433:80",
                           "",
                           ":443",
                           "tcp://:22",
                           "bücher.example",
                           " x.org",
                           "x.org ",
                           "x.org.",
                           "*.x.org."})
    EXPECT_NE(FaultOf(text), "") << text;
  EXPECT_NE(FaultOf("x.org:22").find("tcp://x.org:22"), std::string::npos);
  EXPECT_NE(FaultOf("bücher.example").find("xn--bcher-kva.example"), std::string::npos);
}

TEST(Rule, DenyBeatsAllow) {
  const RuleSet rules = Rules({"**.x.org", "tcp://git.x.org:22"}, {"evil.x.org", "git.x.org:443", "*.deep.x.org"});
  EXPECT_TRUE(Allows(rules, "x.org", 443));
  EXPECT_FALSE(Allows(rules, "evil.x.org", 443));
  EXPECT_FALSE(Allows(rules, "git.x.org", 443));
  EXPECT_TRUE(Allows(rules, "git.x.org", 22));
  EXPECT_TRUE(Allows(rules, "deep.x.org", 443));
  EXPECT_FALSE(Allows(rules, "a.deep.x.org", 443));
  const Decision denied = rules.Decide(Named("evil.x.org"));
  EXPECT_FALSE(denied.allowed);
  EXPECT_STREQ(denied.reason, "denied_by_rule");
  EXPECT_EQ(denied.rule, "evil.x.org");
  EXPECT_STREQ(rules.Decide(Named("y.org")).reason, "not_listed");
  EXPECT_STREQ(rules.Decide(Named("x.org"), 444).reason, "port_not_listed");
}

TEST(Rule, TheCloserRuleNamesTheProtocol) {
  const RuleSet rules = Rules({"*.x.org", "tcp://a.x.org:443", "*.b.x.org:443", "tcp://**.b.x.org:443"});
  EXPECT_EQ(rules.Decide(Named("a.x.org"), 443).allowed_port.protocol, Protocol::kTcp);
  EXPECT_EQ(rules.Decide(Named("c.x.org"), 443).allowed_port.protocol, Protocol::kTls);
  EXPECT_EQ(rules.Decide(Named("b.x.org"), 443).allowed_port.protocol, Protocol::kTcp);
  EXPECT_EQ(rules.Decide(Named("c.b.x.org"), 443).rule, "*.b.x.org:443");
  EXPECT_EQ(rules.AllowedPorts(Named("a.x.org")).size(), 1U);
  EXPECT_FALSE(RuleSet::Make({{"x.org", ""}, {"tcp://x.org:443", ""}}, {}));
}

TEST(Rule, AddressesAreOnlyThemselves) {
  const RuleSet rules = Rules({"192.0.2.7:5432", "**.x.org"}, {"192.0.2.9", "192.0.2.8:80"});
  EXPECT_TRUE(Allows(rules, "192.0.2.7", 5432));
  EXPECT_FALSE(Allows(rules, "192.0.2.7", 443));
  EXPECT_FALSE(Allows(rules, "192.0.2.8", 5432));
  EXPECT_TRUE(Allows(rules, "[::ffff:192.0.2.7]", 5432));
  EXPECT_NE(rules.FindDenied(*Address::Parse("192.0.2.9"), 443), nullptr);
  EXPECT_EQ(rules.FindDenied(*Address::Parse("192.0.2.8"), 443), nullptr);
  EXPECT_NE(rules.FindDenied(*Address::Parse("192.0.2.8"), 80), nullptr);
}

TEST(Rule, HomographsAreOtherNames) {
  const RuleSet rules = Rules({"apple.com"});
  EXPECT_FALSE(Allows(rules, "xn--le-6kc8da.com", 443));
  EXPECT_TRUE(Allows(rules, "APPLE.com.", 443));
}

TEST(HostPort, IsReadStrictly) {
  EXPECT_EQ(HostPort::Parse("X.org:443")->host.name, "x.org");
  EXPECT_EQ(HostPort::Parse("[::1]:80")->host.name, "::1");
  for (const char* text :
       {"x.org", "x.org:", "x.org:0", ":80", "::1:80", "[::1]", "[fe80::1%25lo]:443", "127.1:80", "a:b:80"})
    EXPECT_FALSE(HostPort::Parse(text)) << text;
}

}  // namespace
}  // namespace caisson::network
