// Reads what result.h writes, when it comes back over the border: a result is only believed to be one after this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace caisson::verify {

// `value` must be a verification result as schemas/verification_result.schema.json has it. Members that later versions
// may add are let pass.
Status ExpectResult(const nlohmann::json& value, const std::string& path);

}  // namespace caisson::verify
