// From facts to a verdict. Pure: looks at outcomes only, never at what a program printed.
#pragma once

#include "base/outcome.h"
#include "policy/profile.h"
#include "verify/result.h"

namespace caisson::verify {

// What one check's outcome means. A pass here lets the next check run.
Verdict Judge(const CommandOutcome& outcome, policy::OnViolation on_violation);

}  // namespace caisson::verify
