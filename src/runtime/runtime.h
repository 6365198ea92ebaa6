// A runtime creates a sandbox from a RunPlan, runs commands in it and reports their outcomes. All runtimes take the
// same plan and report the same facts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/command_io.h"
#include "base/network_asker.h"
#include "base/outcome.h"
#include "base/result.h"
#include "base/stop.h"
#include "policy/plan.h"
#include "policy/runtimes.h"
#include "runtime/command.h"
#include "runtime/isolation_report.h"
#include "runtime/live_run.h"

namespace caisson::runtime {

// A file that the workload left, read while no process of the workload was alive.
struct CollectedFile {
  std::string path;  // absolute, inside
  std::string bytes;
};

struct Collection {
  std::vector<CollectedFile> files;
  std::vector<std::string> skipped;  // "path: reason"
};

struct ExecuteOptions {
  int64_t timeout_ms = 0;
  std::string timeout_name;  // the limit it stands for
  // No command follows. The run may then end in parallel to the caller's work; files can still be collected.
  bool last = false;
  const StopToken* stop = nullptr;  // borrowed: passes signals on, and cancels
  int64_t signal_grace_ms = 0;      // from a terminating signal to the kill
  // Called from within Execute, in the order of events inside the sandbox.
  std::function<void(const Violation&)> on_violation;
  NetworkAsker* asker = nullptr;  // borrowed; for a plan that is attended
};

// One sandbox that runs any number of commands, one after the other. The processes of a command end with it; its files
// stay for the next command. When a command has to be ended from outside (by a limit, its timeout or the stop token),
// the run ends too: its files can be collected, and the next Execute is an error. Used by one thread.
class Run {
 public:
  virtual ~Run() = default;  // closes
  virtual const IsolationReport& isolation() const = 0;
  virtual Result<CommandOutcome> Execute(const Command& command, const CommandIo& io,
                                         const ExecuteOptions& options) = 0;
  // Reads the files below /scratch and /workspace that match a glob. No process of the workload is alive meanwhile; the
  // run goes on afterwards.
  virtual Result<Collection> Collect(const std::vector<std::string>& globs) = 0;
  // Ends and removes everything, and returns when nothing is left. Every later call is an error.
  virtual void Close() = 0;
};

// The sandboxes of one kind that a pool keeps ready for future runs; counters start with the process that keeps the
// pool.
struct PoolReport {
  std::string start;  // of policy::kStartNames
  uint64_t ready = 0, preparing = 0;
  uint64_t taken = 0, missed = 0, died = 0;
};
struct PoolsReport {
  std::vector<PoolReport> pools;
  uint64_t interpreters_died = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  // Constant and cheap: admission chooses a runtime by it.
  virtual policy::RuntimeDescription Describe() const = 0;
  // The plan's commands are those known to follow; a runtime may prepare for them. Execute runs them.
  virtual Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) = 0;
  // Opens a run that stays, for a runtime with Ability::kSessions. The plan's commands are ignored.
  virtual Result<std::unique_ptr<LiveRun>> Open(policy::RunPlan) {
    return Error::Unsupported("the runtime " + Describe().name + " keeps no sessions");
  }
  // Empty for a runtime without pools.
  virtual Result<PoolsReport> Pools() { return PoolsReport(); }
};

// The runtimes of a program.
using Runtimes = std::vector<std::unique_ptr<Runtime>>;

inline std::vector<policy::RuntimeDescription> Describe(const Runtimes& runtimes) {
  std::vector<policy::RuntimeDescription> descriptions;
  for (const auto& runtime : runtimes) descriptions.push_back(runtime->Describe());
  return descriptions;
}

// The runtime that admission chose from the same list.
inline Runtime& Chosen(const Runtimes& runtimes, const policy::Decision& decision) {
  for (const auto& runtime : runtimes) {
    if (runtime->Describe().name == decision.runtime) return *runtime;
  }
  CAISSON_CHECK(!"admission chose a runtime that is not there");
  return *runtimes.front();
}

}  // namespace caisson::runtime
