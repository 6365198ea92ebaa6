// A policy file may hold any bytes. None may crash the reader, and accepted rules grant nothing without an owner, a
// reason and an expiry.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "policy/decision.h"
#include "policy/rules.h"
#include "policy/yaml_document.h"
#include "target.h"

CAISSON_FUZZ_TARGET(policy_rules) {
  using namespace caisson::policy;
  if (size > kMaxYamlBytes) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const caisson::Result<Rules> rules = ReadRules(text, "f");
  if (!rules) {
    const std::string& message = rules.error().message;
    CAISSON_CHECK(rules.error().kind == caisson::ErrorKind::kInvalid);
    CAISSON_CHECK(message.rfind("f:", 0) == 0 && message[2] >= '1' && message[2] <= '9');
    CAISSON_CHECK(caisson::EscapeForTerminal(message) == message);
    return 0;
  }
  CAISSON_CHECK(IsRulesDocument(text));
  CAISSON_CHECK(!rules->name.empty() && !rules->lock_owner.empty());
  std::set<std::string> ids;
  for (const RiskRule& rule : rules->risk) {
    CAISSON_CHECK(!rule.id.empty() && !rule.why.empty() && ids.insert(rule.id).second);
    // For every condition of a rule there is a request that satisfies it.
    RequestFacts facts;
    if (!rule.sources.empty()) facts.source = rule.sources[0];
    if (!rule.languages.empty()) facts.language = rule.languages[0];
    facts.asks = {rule.asks.begin(), rule.asks.end()};
    facts.labels = rule.labels;
    CAISSON_CHECK(rule.Matches(facts));
  }
  for (const Override& one : rules->overrides) {
    CAISSON_CHECK(!one.id.empty() && one.id != kCommandLineId && !one.reason.empty() && !one.granted_by.empty());
    CAISSON_CHECK(one.role.empty() != one.request.empty() && !Describe(one.grant).empty());
    Grants after(rules->overrides, one.role, one.request, one.expires_at);
    Grants before(rules->overrides, one.role, one.request, one.expires_at - 1);
    if (const auto* write = std::get_if<WritePath>(&one.grant)) CAISSON_CHECK(before.MayWrite(write->path));
    const bool only = rules->overrides.size() == 1;
    if (const auto* write = std::get_if<WritePath>(&one.grant); write != nullptr && only)
      CAISSON_CHECK(!after.MayWrite(write->path) && after.used().empty());
  }
  DecisionInput input;
  input.rules = &*rules;
  input.profile = FindBuiltIn("balanced");
  input.runtimes.emplace_back().name = "native";
  (void)Refusal(Decide(input));
  return 0;
}
