// The meaning of a profile of profiles/seccomp, read from its JSON without code of the filter compiler: an independent
// oracle for the compiled programs.
#pragma once

#include <linux/seccomp.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sandbox/seccomp_program.h"

namespace caisson::support {

class SeccompOracle {
 public:
  // "balanced" of `directory`/balanced.json, with what that extends.
  SeccompOracle(const std::string& directory, const std::string& profile);
  SeccompOracle(const SeccompOracle&) = delete;
  SeccompOracle& operator=(const SeccompOracle&) = delete;

  struct Verdict {
    uint32_t action;                  // as the filter returns it
    const nlohmann::json* extension;  // x-caisson of a call that notifies, else null
  };
  Verdict Decide(const seccomp_data& data) const;

  const std::vector<nlohmann::json>& EntriesOf(int number) const;
  const std::map<std::string, std::vector<nlohmann::json>>& entries() const { return entries_; }

 private:
  struct ArgumentRule {
    size_t index;
    uint64_t mask, value;
  };
  // An entry as it reads for one call.
  struct Rule {
    bool except;  // for what no other rule of the call holds
    std::vector<ArgumentRule> arguments;
    Verdict verdict;
  };

  void Collect(const nlohmann::json& document);
  static Rule Read(const nlohmann::json& entry);

  std::map<std::string, std::vector<nlohmann::json>> entries_;
  std::map<int, std::vector<Rule>> rules_;  // by number; they point into entries_
  uint32_t default_action_ = 0;
  nlohmann::json foreign_;
};

// Whether the supervisor's rule is what the JSON says about a call that notifies.
bool SaysTheSame(const sandbox::NotifyRule& rule, const nlohmann::json& extension);

}  // namespace caisson::support
