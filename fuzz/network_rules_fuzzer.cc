// Any bytes may stand in a list of destinations: one rule a line, deny rules behind '!', and names to ask about behind
// '?'. Accepted rules mean the same when they are written again, and a destination that a deny rule matches is never
// allowed.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "network/name.h"
#include "network/rule.h"
#include "target.h"

CAISSON_FUZZ_TARGET(network_rules) {
  using namespace caisson::network;
  if (size > 4096) return 0;
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  std::vector<RuleText> allow, deny;
  std::vector<Host> questions;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    if (line[0] == '?') {
      const caisson::Result<Host> host = Host::Parse(line.substr(1));
      if (!host) continue;
      if (!host->address) CAISSON_CHECK(*NormalizeName(host->name) == host->name && host->name.size() <= kMaxNameBytes);
      questions.push_back(*host);
    } else if (line[0] == '!') {
      if (ParseDenyRule(line.substr(1))) deny.push_back({std::string(line.substr(1)), ""});
    } else if (const caisson::Result<Rule> rule = ParseAllowRule(line)) {
      CAISSON_CHECK(rule->port != 0 && rule->protocol);
      CAISSON_CHECK(!rule->is_wildcard() || !IsPublicSuffix(rule->host.name));
      allow.push_back({std::string(line), ""});
    }
  }
  const caisson::Result<RuleSet> rules = RuleSet::Make(allow, deny);
  if (!rules) return 0;
  for (const Rule& rule : rules->allow()) questions.push_back(rule.host);
  for (const Host& host : questions) {
    const Decision by_name = rules->Decide(host);
    const std::vector<AllowedPort> allowed_ports = rules->AllowedPorts(host);
    CAISSON_CHECK(by_name.allowed == !allowed_ports.empty());
    for (const AllowedPort& allowed : allowed_ports) {
      const Decision decision = rules->Decide(host, allowed.port);
      CAISSON_CHECK(decision.allowed && decision.allowed_port.rule == allowed.rule);
      CAISSON_CHECK(rules->allow()[allowed.rule].Matches(host));
      for (const Rule& rule : rules->deny()) {
        CAISSON_CHECK(!(rule.Matches(host) && rule.port == 0 && !rule.protocol));
      }
    }
  }
  return 0;
}
