// The system-call filters as data: the embedded texts of profiles/seccomp/*.json and their parsed contents.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::policy {

// The file of that name as it stands; empty when there is none.
std::string_view FilterText(std::string_view name);

// The filter of `rules` as one document in the shape of the OCI runtime specification, with the extended file merged
// in and the profile's own allow and deny rules in front. `x-caisson` keys remain.
Result<nlohmann::json> FilterDocument(const SeccompRules& rules);

}  // namespace caisson::policy
