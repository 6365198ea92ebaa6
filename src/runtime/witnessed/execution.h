// One command in a container, from outside: passes streams, watches clock and counters, and puts the outcome together.
#pragma once

#include <optional>

#include "base/command_io.h"
#include "base/outcome.h"
#include "base/result.h"
#include "runtime/runtime.h"
#include "runtime/witnessed/conversation.h"
#include "runtime/witnessed/run.h"
#include "sandbox/collector.h"
#include "sandbox/spec.h"

namespace caisson::runtime::witnessed {

struct Executed {
  CommandOutcome outcome;
  bool run_ended = false;  // no command can follow
  bool agent_lost = false;
  // The files that the command left, where the container had to be ended to learn how it ended.
  std::optional<sandbox::Collected> kept;
};

// `spec` has the limits and the probes.
Result<Executed> ExecuteWitnessed(Conversation& agent, const sandbox::Spec& spec, const sandbox::Command& command,
                                  const CommandIo& io, const ExecuteOptions& options, const TakeViolations& more);

}  // namespace caisson::runtime::witnessed
