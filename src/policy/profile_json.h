// A profile as a document: the same keys in the same order as in its file, with one spelling for every value. Hashes,
// comparisons, renderings and the printed profile all use this form.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "policy/profile.h"

namespace caisson::policy {

nlohmann::ordered_json ToJson(const Profile& profile);
nlohmann::ordered_json ToJson(const Limits& limits);

// YAML that reads back as the same profile on top of the built-in one it descends from.
std::string ToYaml(const Profile& profile);

// One place where two documents differ; a side that lacks it is "(absent)".
struct Difference {
  std::string path;
  std::string left;
  std::string right;
};
std::vector<Difference> Compare(const nlohmann::ordered_json& left, const nlohmann::ordered_json& right);

}  // namespace caisson::policy
