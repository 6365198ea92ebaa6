// An interpreter that already runs in this program, started and warmed up by its owner and never given foreign code. A
// workload that would execute the same interpreter is forked from it instead.
//
// Everything else of a sandbox is as it would be: the walls are PID 1's, and stand before Become is called. What is not
// is said in docs/design/threat-model.md: such workloads share the layout of their address space with their siblings
// and with the supervisor.
#pragma once

#include "sandbox/spec.h"

namespace caisson::sandbox {

class Interpreter {
 public:
  // Runs: PID 1. Whether executing `path` for this command would start this very interpreter, in a way it can take up.
  virtual bool Serves(const char* path, const Command& command) const = 0;

  // Runs: the workload's process, forked from PID 1, with nothing open but its streams. Behaves as the executed
  // interpreter would, and does not return.
  [[noreturn]] virtual void Become(const Command& command) const = 0;

 protected:
  ~Interpreter() = default;
};

}  // namespace caisson::sandbox
