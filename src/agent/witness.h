// The witness of one command: starts it, observes its calls, passes its streams on, watches the clock, and reports how
// it ended. It is to a foreign container what the supervisor is to a native sandbox, with the same observer, filters
// and classes; limits that take privileges (memory, processes, CPU) belong to the walls outside.
//
// Runs: agent, which is PID 1. Every other process of the pid namespace belongs to the command.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/channel.h"
#include "agent/limit_watch.h"
#include "agent/own_group.h"
#include "agent/protocol.h"
#include "base/outcome.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/dns_server.h"
#include "sandbox/observer.h"
#include "sandbox/setup.h"
#include "sandbox/tree_meter.h"

namespace caisson::agent {

// What stays for all commands of a run.
struct Place {
  Plan plan;
  sandbox::SetupContext context;
  std::unique_ptr<sandbox::ExtendedProgram> extended;  // where the profile adds to the filter
  std::unique_ptr<sandbox::DnsServer> names;           // none where look-ups are not served
  int64_t dropped_queries = 0;                         // as last seen
  UniqueFd root;                                       // "/"
  std::vector<UniqueFd> areas;        // writable file systems, each once; their fill is the use of scratch
  std::unique_ptr<LimitWatch> watch;  // where no cgroup limits the command
  int children_fd = -1;               // a signalfd for SIGCHLD, borrowed
  OwnGroup group;
  std::optional<sandbox::TreeMeter> meter;  // in a pod, where only the agent watches the number of tasks
};

// Returns when no process of the command is left. An error means that the command did not run.
Result<Outcome> RunWitnessed(Place& place, Channel& channel, const Execute& execute);

}  // namespace caisson::agent
