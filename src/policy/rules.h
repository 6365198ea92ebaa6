// The rules that an operator sets above all profiles: which overrides each role has, and how much isolation and whose
// approval a request needs, depending on its properties. profiles/policy.yaml holds the built-in rules.
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

// The facts about a request that are known before any of its code runs.
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
  Strength strength = Strength::kNative;      // the weakest strength that suffices
  std::string approval;                       // the role that must approve; empty: none
  std::string why;

  bool Matches(const RequestFacts& facts) const;
};

struct Rules {
  std::string name;
  std::string lock_owner;            // the role that approves changes of isolation
  bool command_line_trusted = true;  // flags that loosen a profile count as grants of the caller
  std::array<std::string, kStrengthNames.size()> strength_reasons;
  std::vector<RiskRule> risk;
  std::vector<Override> overrides;
};

const Rules& BuiltInRules();

// True when the text contains `kind: policy`, even if the rest is faulty.
bool IsRulesDocument(std::string_view text);
Result<Rules> ReadRules(std::string_view text, const std::string& file);
// The rules of the machine, which every program uses unless the caller names others.
inline constexpr char kInstalledRules[] = "/etc/caisson/policy.yaml";
// The rules in force: the file `path`; if `path` is empty, the file `installed` where it exists; else the built-in
// rules. A file that exists and cannot be read is an error.
Result<Rules> LoadRules(const std::string& path, const std::string& installed = kInstalledRules);

// "python", "c", …, from what a command starts.
std::string LanguageOf(const std::vector<std::string>& argv);
// True for commands that install packages: they run code that neither the request nor the operator supplied.
bool IsInstallStep(std::string_view tier, const std::vector<std::string>& argv);

}  // namespace caisson::policy
