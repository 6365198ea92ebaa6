// The images that run and verify find on this machine.
#pragma once

#include <string>

#include "base/result.h"
#include "policy/plan.h"

namespace caisson::cli {

// A name or digest in the caller's own store or the machine's, or "venv:PATH". An environment variable, CAISSON_IMAGES,
// replaces the caller's own.
Result<policy::PlannedImage> OpenImage(const std::string& reference);

}  // namespace caisson::cli
