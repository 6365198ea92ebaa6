// Validates a result (result.h) that comes back from outside the service. Only a document that passes counts as a
// result.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace caisson::verify {

// `value` must be a verification result according to schemas/verification_result.schema.json. Unknown members are
// accepted, because later versions may add some.
Status ExpectResult(const nlohmann::json& value, const std::string& path);

}  // namespace caisson::verify
