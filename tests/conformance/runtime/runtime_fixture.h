// What every runtime must do, however it is built. CAISSON_RUNTIME names the runtime under test:
//
//   native    sandboxes of this process
//   launched  sandboxes that a launcher creates cold
//   parked    sandboxes that a launcher creates from a parked supervisor and init process
//   zygote    the same, forked from a running interpreter
//   agent     caisson-agent in plain namespaces, without a container program
//   oci       containers by runc or crun
//   container containers of the engine at DOCKER_HOST
//   kubernetes  pods of the cluster that CAISSON_KUBERNETES names (tests/cluster)
//
// CAISSON_LAUNCHER_BIN and CAISSON_AGENT_BIN name the programs. A new runtime adds a name to MakeUnderTest and, if it
// lacks an ability that a runtime may lack, a row to the table of lacking abilities.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "policy/plan.h"
#include "runtime/runtime.h"

namespace caisson::runtime {

using StartedRun = std::unique_ptr<runtime::Run>;  // testing::Test has its own Run

// Abilities that a runtime may declare it lacks. Everything else is required of all runtimes.
enum class Ability {
  kManyThreads,      // several threads of one process have runs at the same time
  kClockBesideSink,  // a slow sink does not stop the clock
  kTerminal,
  kMemoryLimit,
  kProcessLimit,
  kScratchLimit,
  kCpuTimeLimit,
  kObservedWrites,
  kObservedNetwork,
  kObservedCalls,
};

class RuntimeTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static const std::string& name();
  static bool Has(Ability ability);
  bool is_launched() const { return launcher_ > 0; }
  // Waits for the launcher; returns its exit code, or minus the signal that ended it.
  int EndOfLauncher();

  static policy::RunPlan Plan();
  StartedRun Start(policy::RunPlan plan);
  StartedRun Start() { return Start(Plan()); }

  pid_t launcher_ = -1;
  std::unique_ptr<Runtime> runtime_;
};

Command Shell(const std::string& script);
Command Python(const std::string& text);
ExecuteOptions Within(int64_t timeout_ms);

// Executes a command; by default its output is captured and it has no input. An error fails the test and returns an
// outcome that equals no other.
CommandOutcome Execute(runtime::Run& run, const Command& command, const CommandIo& io = CommandIo::Capture(),
                       const ExecuteOptions& options = Within(60'000));

// Returns the first violation of that class; fails the test when there is none.
Violation FindViolation(const CommandOutcome& outcome, ViolationClass violation_class);

// UniqueMark returns a number that no process of another test has among its arguments; CountMarked counts the processes
// of this machine that have it.
std::string UniqueMark();
int CountMarked(const std::string& mark);
// Waits until `count` processes have the mark.
bool AwaitMarked(const std::string& mark, int count);

}  // namespace caisson::runtime

#define CAISSON_NEEDS(ability)                                                         \
  do {                                                                                 \
    if (!Has(Ability::ability)) GTEST_SKIP() << name() << " declares no " << #ability; \
  } while (false)
