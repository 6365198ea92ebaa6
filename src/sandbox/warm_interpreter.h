// An interpreter that already runs in this program. Its owner started and warmed it up, and it never ran foreign code.
// A workload that would execute the same interpreter is forked from it instead.
//
// All other properties of the sandbox are unchanged: PID 1 has the walls, and they stand before Become is called.
// docs/design/threat-model.md describes the difference: such workloads share the layout of their address space with
// their siblings and with the supervisor.
#pragma once

#include "sandbox/spec.h"

namespace caisson::sandbox {

class WarmInterpreter {
 public:
  // Runs: PID 1. Whether executing `path` for this command would start this very interpreter, in a form that it can
  // serve.
  virtual bool Serves(const char* path, const Command& command) const = 0;

  // Runs: the workload's process, forked from PID 1, with only its streams open. Behaves like the executed interpreter
  // and does not return.
  [[noreturn]] virtual void Become(const Command& command) const = 0;

 protected:
  ~WarmInterpreter() = default;
};

}  // namespace caisson::sandbox
