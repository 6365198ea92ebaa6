// Every limit and every class of violation: each is reported with its own class and with the run's own numbers.
#include <signal.h>

#include <algorithm>
#include <string>

#include "conformance/runtime/runtime_fixture.h"

namespace caisson::runtime {
namespace {

class LimitsTest : public RuntimeTest {
 protected:
  // Runs one command in its own run and notes the violations that are reported while it happens.
  CommandOutcome Try(policy::RunPlan plan, const Command& command, int64_t timeout_ms = 60'000) {
    const StartedRun run = Start(std::move(plan));
    if (run == nullptr) return {};
    ExecuteOptions options = Within(timeout_ms);
    options.on_violation = [this](const Violation& violation) { told_.push_back(violation.violation_class); };
    return Execute(*run, command, CommandIo::Capture(), options);
  }
  CommandOutcome Try(const Command& command) { return Try(Plan(), command); }
  bool WasTold(ViolationClass violation_class) const {
    return std::find(told_.begin(), told_.end(), violation_class) != told_.end();
  }

  std::vector<ViolationClass> told_;
};

TEST_F(LimitsTest, NothingIsWrongWithAGoodCommand) {
  const CommandOutcome outcome = Try(Shell("echo fine; echo x > /scratch/x; echo y > /tmp/y"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.violations.empty());
  EXPECT_TRUE(told_.empty());
}

TEST_F(LimitsTest, Time) {
  const CommandOutcome outcome = Try(Plan(), Shell("sleep 300"), 300);
  EXPECT_EQ(outcome.ending, Ending::kTimeout);
  const Violation violation = FindViolation(outcome, ViolationClass::kTimeout);
  EXPECT_EQ(violation.reason, "command_timeout_ms");
  EXPECT_EQ(violation.limit, 300);
  EXPECT_TRUE(WasTold(ViolationClass::kTimeout));
}

TEST_F(LimitsTest, CpuTime) {
  CAISSON_NEEDS(kCpuTimeLimit);
  policy::RunPlan plan = Plan();
  plan.limits.cpu_time_ms = 200;
  const CommandOutcome outcome = Try(std::move(plan), Shell("while :; do :; done"));
  EXPECT_EQ(outcome.ending, Ending::kTimeout);
  EXPECT_EQ(FindViolation(outcome, ViolationClass::kTimeout).reason, "cpu_time_ms");
}

TEST_F(LimitsTest, Memory) {
  CAISSON_NEEDS(kMemoryLimit);
  const CommandOutcome outcome = Try(Python("x = b'x' * (1 << 30); print('survived')"));
  EXPECT_EQ(outcome.ending, Ending::kMemoryLimit) << outcome.stdout_stream.head << outcome.stderr_stream.head;
  EXPECT_EQ(FindViolation(outcome, ViolationClass::kMemoryLimit).limit, Plan().limits.memory_bytes);
}

TEST_F(LimitsTest, Processes) {
  CAISSON_NEEDS(kProcessLimit);
  policy::RunPlan plan = Plan();
  plan.limits.processes = 16;
  const CommandOutcome outcome = Try(std::move(plan), Shell("while :; do sleep 300 & done"));
  EXPECT_EQ(FindViolation(outcome, ViolationClass::kProcessLimit).limit, 16);
}

TEST_F(LimitsTest, Output) {
  policy::RunPlan plan = Plan();
  plan.limits.output_bytes = 100'000;
  const StartedRun run = Start(std::move(plan));
  ASSERT_NE(run, nullptr);
  size_t told = 0;
  const auto on_output = [&](OutputStream, std::string_view bytes) { told += bytes.size(); };
  const CommandOutcome outcome =
      Execute(*run, Shell("head -c 1000000 /dev/zero"), CommandIo::Capture(std::nullopt, on_output));
  EXPECT_EQ(outcome.ending, Ending::kOutputLimit);
  EXPECT_EQ(FindViolation(outcome, ViolationClass::kOutputLimit).limit, 100'000);
  EXPECT_EQ(told, 100'000U);
}

TEST_F(LimitsTest, Scratch) {
  CAISSON_NEEDS(kScratchLimit);
  const CommandOutcome outcome = Try(Shell("head -c 100000000 /dev/zero > /scratch/big"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_EQ(FindViolation(outcome, ViolationClass::kFilesystemWrite).reason, "scratch_limit");
}

TEST_F(LimitsTest, RefusedWrites) {
  CAISSON_NEEDS(kObservedWrites);
  const CommandOutcome outcome = Try(Shell("echo x > /usr/planted || exit 5"));
  EXPECT_NE(outcome.exit_code, 0);
  FindViolation(outcome, ViolationClass::kFilesystemWrite);
  EXPECT_TRUE(WasTold(ViolationClass::kFilesystemWrite));
}

TEST_F(LimitsTest, TheNetwork) {
  CAISSON_NEEDS(kObservedNetwork);
  const CommandOutcome outcome = Try(Python(
      "import socket\ns = socket.socket()\ntry: s.connect(('192.0.2.1', 80))\nexcept OSError: print('refused')"));
  EXPECT_EQ(outcome.stdout_stream.head, "refused\n") << outcome.stderr_stream.head;
  FindViolation(outcome, ViolationClass::kNetworkAccess);
}

TEST_F(LimitsTest, ForbiddenCalls) {
  CAISSON_NEEDS(kObservedCalls);
  // ptrace(PTRACE_TRACEME)
  const CommandOutcome outcome = Try(Python("import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\nprint('on')"));
  FindViolation(outcome, ViolationClass::kSyscall);
}

// A limit that one command exceeded does not affect the next command.
TEST_F(LimitsTest, ViolationsBelongToTheirCommand) {
  CAISSON_NEEDS(kObservedWrites);
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  FindViolation(Execute(*run, Shell("echo x > /usr/planted")), ViolationClass::kFilesystemWrite);
  const CommandOutcome second = Execute(*run, Shell("echo fine"));
  EXPECT_TRUE(second.violations.empty());
  EXPECT_EQ(second.stdout_stream.head, "fine\n");
}

}  // namespace
}  // namespace caisson::runtime
