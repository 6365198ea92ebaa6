// PID 1 of the sandbox. Runs the set-up table, then runs one command at a time: starts it, reaps every process that
// ends, passes on signals that come from outside, and kills all remaining processes when the command's main process
// ends.
//
// It never executes a program itself, is not dumpable, and holds nothing but the control socket and the ends of the
// standard streams.
#pragma once

#include "sandbox/setup.h"

namespace caisson::sandbox {

// Runs: child after clone; does not return.
[[noreturn]] void RunInit(SetupContext& context);

}  // namespace caisson::sandbox
