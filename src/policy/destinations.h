// Classes of destinations: "class:packages:pypi" stands for the hosts that pip needs. The built-in classes are in
// profiles/destinations.yaml, which the build turns into data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "network/rule.h"

namespace caisson::policy {

inline constexpr std::string_view kClassPrefix = "class:";

struct DestinationClass {
  std::string name;  // "packages:pypi"
  std::string description;
  std::vector<std::string> allow;  // rules, as network/rule.h has them
};

// In the order of the file.
const std::vector<DestinationClass>& BuiltInDestinations();
Result<std::vector<DestinationClass>> ReadDestinations(std::string_view text, const std::string& file);

// nullptr when there is none of that name.
const DestinationClass* FindDestinationClass(std::string_view name);

// The rules that entries of network.allow stand for. A rule of a class is labelled "class:packages:pypi (pypi.org)".
// The entries are fault-free (FaultInAllowEntry).
std::vector<network::RuleText> ExpandDestinations(const std::vector<std::string>& entries);

}  // namespace caisson::policy
