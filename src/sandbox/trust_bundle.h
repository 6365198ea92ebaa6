// The certificates of the authorities that this machine trusts, as one PEM text.
//
// Runs: supervisor.
#pragma once

#include <string>

#include "base/result.h"

namespace caisson::sandbox {

// Empty where the machine has none.
Result<std::string> ReadTrustBundle();

}  // namespace caisson::sandbox
