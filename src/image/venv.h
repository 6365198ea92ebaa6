// A Python virtual environment of the host (venv, virtualenv, uv, conda) as an image: its directory and its interpreter
// are shown read-only beside the host's programs. Its files may change at any time, so it has no digest.
#pragma once

#include <string>

#include "base/result.h"
#include "policy/plan.h"

namespace caisson::image {

// kInvalid when there is no virtual environment at `path`. The paths are not judged: admission does that.
Result<policy::PlannedImage> OpenVirtualEnvironment(const std::string& path);

}  // namespace caisson::image
