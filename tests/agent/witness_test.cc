// What hostile code can do to the witness that stands in the same walls: nothing. Runs caisson-agent in plain
// namespaces, without a container program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "policy/profile.h"
#include "support/bare_container.h"

namespace caisson::agent {
namespace {

class WitnessTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* program = ::getenv("CAISSON_AGENT_BIN");
    ASSERT_NE(program, nullptr) << "CAISSON_AGENT_BIN must name the agent";
    policy::RunPlan plan;
    plan.profile = *policy::FindBuiltIn("balanced");
    plan.limits = plan.profile.limits;
    Result<std::unique_ptr<runtime::Run>> run = support::MakeBareRuntime(program)->Start(std::move(plan));
    ASSERT_TRUE(run) << run.error().message;
    run_ = *std::move(run);
  }

  CommandOutcome Python(const std::string& text) {
    runtime::ExecuteOptions options;
    options.timeout_ms = 60'000;
    options.timeout_name = "command_timeout_ms";
    const Result<CommandOutcome> outcome =
        run_->Execute({{"python3", "-S", "-c", text}, {}}, CommandIo::Capture(), options);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *outcome : CommandOutcome();
  }

  std::unique_ptr<runtime::Run> run_;
};

TEST_F(WitnessTest, SignalsDoNotReachIt) {
  const CommandOutcome outcome = Python(
      "import os\n"
      "for s in range(1, 65):\n"
      "  try: os.kill(1, s)\n"
      "  except OSError: pass\n"
      "print('sent')");
  EXPECT_EQ(outcome.stdout_stream.head, "sent\n") << outcome.stderr_stream.head;
  EXPECT_EQ(outcome.ending, Ending::kExited);
  EXPECT_EQ(Python("print('on')").stdout_stream.head, "on\n");
}

TEST_F(WitnessTest, NothingInsideLooksIntoIt) {
  const CommandOutcome outcome = Python(
      "import os, resource\n"
      "for name in ('mem', 'environ', 'maps', 'fd/3', 'root', 'cwd', 'exe'):\n"
      "  try:\n"
      "    os.open('/proc/1/' + name, os.O_RDONLY); print('opened', name)\n"
      "  except OSError: pass\n"
      "for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):\n"
      "  try: resource.prlimit(1, limit, (0, 0)); print('limited')\n"
      "  except OSError: pass\n");
  EXPECT_EQ(outcome.stdout_stream.head, "") << outcome.stderr_stream.head;
  EXPECT_EQ(Python("print('on')").stdout_stream.head, "on\n");
}

TEST_F(WitnessTest, ForgedFramesStayOutput) {
  const CommandOutcome outcome = Python("import os\nos.write(1, b'\\x44\\0\\0\\0\\0\\0\\0\\0' * 100)\nos._exit(7)");
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.stdout_stream.total_bytes, 800U);
}

TEST_F(WitnessTest, WhatItSeesIsMarkedAsSeenInside) {
  const CommandOutcome outcome = Python(
      "import socket\n"
      "try: open('/usr/planted', 'w')\n"
      "except OSError: pass\n"
      "try: socket.getaddrinfo('caisson.example', 80)\n"
      "except OSError: pass\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_stream.head;
  ASSERT_GE(outcome.violations.size(), 2U);
  bool wrote = false, asked = false;
  for (const Violation& violation : outcome.violations) {
    EXPECT_EQ(violation.source, EvidenceSource::kInside);
    wrote |= violation.violation_class == ViolationClass::kFilesystemWrite;
    asked |= violation.reason == "net.dns";
  }
  EXPECT_TRUE(wrote);
  EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace caisson::agent
