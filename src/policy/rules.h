// The rules an operator sets above all profiles: which overrides are granted to whom, and how much isolation and whose
// approval a request needs for what it is. profiles/policy.yaml holds the built-in ones.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/overrides.h"
#include "policy/profile.h"

namespace caisson::policy {

// What a request asks for beyond running code.
enum class Ask { kNetwork, kWritableMount, kOverride, kInstall };
inline constexpr std::array<const char*, 4> kAskNames = {"network", "rw_mount", "override", "install"};

// What is known of a request before anything of it runs.
struct RequestFacts {
  std::string source;  // "path", "files", "archive", "command"
  std::map<std::string, std::string> labels;
  std::set<Ask> asks;
  std::string language;  // "python", "c", …; "other" when nothing tells
};

// A condition that is left out holds for every request.
struct RiskRule {
  std::string id;
  std::vector<std::string> sources;
  std::vector<std::string> languages;
  std::vector<Ask> asks;                      // any of them
  std::map<std::string, std::string> labels;  // all of them
  Tier tier = Tier::kNative;                  // the weakest that will do
  std::string approval;                       // whose; empty: nobody's
  std::string why;

  bool Matches(const RequestFacts& facts) const;
};

struct Rules {
  std::string name;
  std::string lock_owner;            // who approves changes of isolation
  bool command_line_trusted = true;  // flags that loosen a profile are grants of whoever types them
  std::array<std::string, kTierNames.size()> tier_reasons;
  std::vector<RiskRule> risk;
  std::vector<Override> overrides;
};

const Rules& BuiltInRules();

// True when the text calls itself `kind: policy`, whatever else it is.
bool IsRulesDocument(std::string_view text);
Result<Rules> ReadRules(std::string_view text, const std::string& file);
// The rules in force: `path`, or the built-in ones when it is empty.
Result<Rules> LoadRules(const std::string& path);

// "python", "c", …, from what a command starts.
std::string LanguageOf(const std::vector<std::string>& argv);
// True for commands that install packages: they run code that nobody here has seen.
bool IsInstallStep(std::string_view tier, const std::vector<std::string>& argv);

}  // namespace caisson::policy
