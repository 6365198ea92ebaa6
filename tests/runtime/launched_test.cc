// The runtime that asks a launcher, used as the service uses it: an inherited connection, many threads, live output,
// cancellation through a descriptor. CAISSON_LAUNCHER_BIN names the launcher.
#include "runtime/native/launched.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "policy/profile.h"
#include "runtime/native/native.h"

namespace caisson::runtime::native {
namespace {

using StartedRun = std::unique_ptr<runtime::Run>;  // testing::Test has a Run of its own

policy::RunPlan ShellPlan(const std::string& script) {
  policy::RunPlan plan;
  plan.profile = *policy::FindBuiltIn("balanced");
  plan.limits = plan.profile.limits;
  plan.limits.output_bytes = 1 << 20;
  policy::PlannedCommand command;
  command.name = command.tier = "run";
  command.argv = {"/bin/sh", "-c", script};
  plan.commands.push_back(std::move(command));
  return plan;
}

ExecuteOptions Within(int64_t timeout_ms) {
  ExecuteOptions options;
  options.timeout_ms = timeout_ms;
  options.timeout_name = "command_timeout_ms";
  return options;
}

class LaunchedTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* binary = ::getenv("CAISSON_LAUNCHER_BIN");
    ASSERT_NE(binary, nullptr);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    launcher_ = ::fork();
    if (launcher_ == 0) {
      ::close(ends[0]);
      const std::string number = std::to_string(ends[1]);
      ::execl(binary, binary, "--fd", number.c_str(), nullptr);
      ::_exit(99);
    }
    ::close(ends[1]);
    ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    runtime_ = MakeLaunchedRuntime(UniqueFd(ends[0]));
  }
  void TearDown() override {
    runtime_.reset();
    if (launcher_ <= 0) return;
    EXPECT_EQ(EndOfLauncher(), 0);
  }
  // Waits for it; its exit code, or minus the signal that ended it.
  int EndOfLauncher() {
    int status = 0;
    EXPECT_EQ(::waitpid(launcher_, &status, 0), launcher_);
    launcher_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  pid_t launcher_ = -1;
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(LaunchedTest, EndsWithItsClient) {
  Result<StartedRun> run = runtime_->Start(ShellPlan("sleep 300"));
  ASSERT_TRUE(run) << run.error().message;
  runtime_.reset();
  EXPECT_EQ(EndOfLauncher(), 0);
  const Result<CommandOutcome> outcome = (*run)->Execute(0, Within(30'000));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(outcome.error().errno_value, ECONNRESET);
  EXPECT_NE(outcome.error().message.find("the launcher was lost"), std::string::npos);
  EXPECT_FALSE((*run)->Collect({"/scratch/**"}));
}

TEST_F(LaunchedTest, ALostLauncherIsAnErrorOfTheNextStartToo) {
  ::kill(launcher_, SIGKILL);
  EXPECT_EQ(EndOfLauncher(), -SIGKILL);
  const Result<StartedRun> run = runtime_->Start(ShellPlan("true"));
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().errno_value, ECONNRESET);
}

TEST_F(LaunchedTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(16);
  for (size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 3; ++turn) {
        Result<StartedRun> run = runtime_->Start(ShellPlan("echo " + std::to_string(i)));
        if (!run) {
          outputs[i] += run.error().message;
          continue;
        }
        const Result<CommandOutcome> outcome = (*run)->Execute(0, Within(60'000));
        outputs[i] += outcome ? outcome->stdout_stream.head : outcome.error().message;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string line = std::to_string(i) + "\n";
    EXPECT_EQ(outputs[i], line + line + line);
  }
}

// Each line is only written once the one before it was seen outside, so none can have waited for the end.
TEST_F(LaunchedTest, OutputIsToldAsItComes) {
  const std::unique_ptr<Runtime> own = MakeNativeRuntime();
  for (Runtime* runtime : {runtime_.get(), own.get()}) {
    policy::RunPlan plan = ShellPlan("");
    int records[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, records), 0);
    UniqueFd ours(records[0]);
    const UniqueFd theirs(records[1]);
    plan.commands[0].argv[2] =
        "trap 'n=$((n+1)); echo line $n; echo error $n >&2' USR1; echo line 0; while [ \"$n\" != 3 ]; do sleep 0.01; "
        "done";
    Result<StartedRun> run = runtime->Start(std::move(plan));
    ASSERT_TRUE(run) << run.error().message;
    std::string told, told_error;
    int seen = 0;
    ExecuteOptions options = Within(60'000);
    options.signal_fd = theirs.get();
    options.on_output = [&](OutputStream stream, std::string_view bytes) {
      (stream == OutputStream::kStdout ? told : told_error).append(bytes);
      if (stream != OutputStream::kStdout || told.back() != '\n' || seen == 3) return;
      ++seen;
      struct signalfd_siginfo record {};
      record.ssi_signo = SIGUSR1;
      EXPECT_EQ(::send(ours.get(), &record, sizeof(record), 0), static_cast<ssize_t>(sizeof(record)));
    };
    const Result<CommandOutcome> outcome = (*run)->Execute(0, options);
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(outcome->ending, Ending::kExited);
    EXPECT_EQ(told, "line 0\nline 1\nline 2\nline 3\n");
    EXPECT_EQ(told, outcome->stdout_stream.head);
    EXPECT_EQ(told_error, outcome->stderr_stream.head);
  }
}

TEST_F(LaunchedTest, OutputIsToldWithinItsLimitOnly) {
  policy::RunPlan plan = ShellPlan("head -c 1000000 /dev/zero");
  plan.limits.output_bytes = 100'000;
  Result<StartedRun> run = runtime_->Start(std::move(plan));
  ASSERT_TRUE(run) << run.error().message;
  size_t told = 0;
  ExecuteOptions options = Within(60'000);
  options.on_output = [&](OutputStream, std::string_view bytes) { told += bytes.size(); };
  const Result<CommandOutcome> outcome = (*run)->Execute(0, options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->ending, Ending::kOutputLimit);
  EXPECT_EQ(told, 100'000U);
}

// A reader that dawdles must not keep the supervisor from its clock, and still hears everything.
TEST_F(LaunchedTest, ASlowReaderStopsNoClock) {
  policy::RunPlan plan = ShellPlan("head -c 900000 /dev/zero; sleep 300");
  Result<StartedRun> run = runtime_->Start(std::move(plan));
  ASSERT_TRUE(run) << run.error().message;
  size_t told = 0;
  bool dawdled = false;
  ExecuteOptions options = Within(300);
  options.on_output = [&](OutputStream, std::string_view bytes) {
    told += bytes.size();
    if (!std::exchange(dawdled, true)) ::usleep(3'000'000);  // what is tested is that nobody waits for this
  };
  const Result<CommandOutcome> outcome = (*run)->Execute(0, options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->ending, Ending::kTimeout);
  EXPECT_LT(outcome->duration_ms, 3'000);
  EXPECT_EQ(told, outcome->stdout_stream.total_bytes);
}

TEST_F(LaunchedTest, TheEndOfTheSignalDescriptorCancels) {
  const std::unique_ptr<Runtime> own = MakeNativeRuntime();
  for (Runtime* runtime : {runtime_.get(), own.get()}) {
    int records[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, records), 0);
    UniqueFd ours(records[0]);
    const UniqueFd theirs(records[1]);
    Result<StartedRun> run = runtime->Start(ShellPlan("trap '' TERM; echo kept > /scratch/f; echo up; sleep 300"));
    ASSERT_TRUE(run) << run.error().message;
    ExecuteOptions options = Within(60'000);
    options.signal_fd = theirs.get();
    options.signal_grace_ms = 50'000;
    options.on_output = [&](OutputStream, std::string_view) { ours.Reset(); };
    const Result<CommandOutcome> outcome = (*run)->Execute(0, options);
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(outcome->ending, Ending::kCancelled);
    EXPECT_LT(outcome->duration_ms, 40'000);
    const Result<Collection> collection = (*run)->Collect({"/scratch/*"});
    ASSERT_TRUE(collection) << collection.error().message;
    ASSERT_EQ(collection->files.size(), 1U);
    EXPECT_EQ(collection->files[0].bytes, "kept\n");
  }
}

TEST_F(LaunchedTest, ACommandThatIsNotThereEndsTheRunAndNotTheLauncher) {
  Result<StartedRun> run = runtime_->Start(ShellPlan("true"));
  ASSERT_TRUE(run) << run.error().message;
  const Result<CommandOutcome> outcome = (*run)->Execute(7, Within(1000));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "execute.command: there is no such command");
  EXPECT_TRUE(runtime_->Start(ShellPlan("true")));
}

}  // namespace
}  // namespace caisson::runtime::native
