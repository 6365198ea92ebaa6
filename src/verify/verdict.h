// Derives a verdict from facts. Pure: uses outcomes only, never the output of a program.
#pragma once

#include "base/outcome.h"
#include "policy/profile.h"
#include "verify/result.h"

namespace caisson::verify {

// The verdict of one check's outcome. After a pass the next check runs.
Verdict Judge(const CommandOutcome& outcome, policy::OnViolation on_violation);

}  // namespace caisson::verify
