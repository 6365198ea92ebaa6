// Files go in and come out, and nothing else is left.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "conformance/runtime/runtime_fixture.h"

namespace caisson::runtime {
namespace {

class FilesTest : public RuntimeTest {};

std::string Mounts() {
  std::ifstream file("/proc/self/mountinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string BytesOf(const Result<Collection>& collection, const std::string& path) {
  if (!collection) return collection.error().message;
  for (const CollectedFile& file : collection->files) {
    if (file.path == path) return file.bytes;
  }
  return "no " + path;
}

TEST_F(FilesTest, TheWorkspaceIsWhatWasGiven) {
  for (const policy::Access access : {policy::Access::kReadOnly, policy::Access::kCopyOnWrite}) {
    policy::RunPlan plan = Plan();
    plan.workspace_access = access;
    plan.workspace_files = {{"a/b.txt", "text\n", 0644, policy::FileKind::kRegular},
                            {"run.sh", "#!/bin/sh\necho ran\n", 0755, policy::FileKind::kRegular},
                            {"link", "a/b.txt", 0644, policy::FileKind::kSymlink}};
    const StartedRun run = Start(std::move(plan));
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(Execute(*run, Shell("cat a/b.txt link; ./run.sh")).stdout_stream.head, "text\ntext\nran\n");
    const bool writable = access == policy::Access::kCopyOnWrite;
    EXPECT_EQ(Execute(*run, Shell("echo new > a/new")).exit_code == 0, writable);
    const Result<Collection> collection = run->Collect({"/workspace/**"});
    EXPECT_EQ(BytesOf(collection, "/workspace/a/new"), writable ? "new\n" : "no /workspace/a/new");
  }
}

TEST_F(FilesTest, CollectingDoesNotEndTheRun) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(BytesOf(run->Collect({"/scratch/*"}), "/scratch/x"), "no /scratch/x");
  for (int i = 0; i < 5; ++i) {
    const std::string line = std::to_string(i) + "\n";
    ASSERT_EQ(
        Execute(*run, Shell("echo " + std::to_string(i) + " > /scratch/x; ln -sf /etc/passwd /scratch/l")).exit_code,
        0);
    const Result<Collection> collection = run->Collect({"/scratch/*"});
    EXPECT_EQ(BytesOf(collection, "/scratch/x"), line);
    ASSERT_TRUE(collection);
    EXPECT_EQ(collection->files.size(), 1U);
    EXPECT_EQ(collection->skipped.size(), 1U) << "a link is not followed";
  }
}

TEST_F(FilesTest, WhatIsCollectedIsNotWrittenToAnyMore) {
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  const CommandOutcome outcome =
      Execute(*run, Shell("(while :; do echo x >> /scratch/grows; done) & while [ ! -s /scratch/grows ]; do :; done"));
  EXPECT_TRUE(outcome.left_processes);
  const std::string first = BytesOf(run->Collect({"/scratch/grows"}), "/scratch/grows");
  EXPECT_EQ(first.substr(0, 2), "x\n");
  EXPECT_EQ(BytesOf(run->Collect({"/scratch/grows"}), "/scratch/grows"), first);
}

TEST_F(FilesTest, CollectedAfterTheLastCommandAndAfterAKill) {
  StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  ExecuteOptions last = Within(60'000);
  last.last = true;
  EXPECT_EQ(Execute(*run, Shell("echo kept > /scratch/f"), CommandIo::Capture(), last).exit_code, 0);
  EXPECT_EQ(BytesOf(run->Collect({"/scratch/f"}), "/scratch/f"), "kept\n");
  EXPECT_FALSE(run->Execute(Shell("true"), CommandIo::Capture(), Within(1000)));
  run = Start();
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(Execute(*run, Shell("echo kept > /scratch/f; sleep 300"), CommandIo::Capture(), Within(500)).ending,
            Ending::kTimeout);
  EXPECT_EQ(BytesOf(run->Collect({"/scratch/f"}), "/scratch/f"), "kept\n");
}

TEST_F(FilesTest, CloseLeavesNothing) {
  const std::string mounts = Mounts();
  const std::string mark = UniqueMark();
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(Execute(*run, Shell("sleep " + mark + " & echo up")).stdout_stream.head, "up\n");
  run->Close();
  EXPECT_EQ(CountMarked(mark), 0);
  EXPECT_EQ(Mounts(), mounts);
  run->Close();
  const Result<CommandOutcome> outcome = run->Execute(Shell("true"), CommandIo::Capture(), Within(1000));
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("closed"), std::string::npos) << outcome.error().message;
  EXPECT_FALSE(run->Collect({"/scratch/*"}));
}

TEST_F(FilesTest, TheOwnersDeathLeavesNothing) {
  const std::string mark = UniqueMark();
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    Result<StartedRun> run = runtime_->Start(Plan());
    if (run) (void)(*run)->Execute(Shell("sleep " + mark), CommandIo::Capture(), Within(60'000));
    ::_exit(1);
  }
  EXPECT_TRUE(AwaitMarked(mark, 2)) << "the shell and its sleep";
  ::kill(owner, SIGKILL);
  EXPECT_EQ(::waitpid(owner, nullptr, 0), owner);
  EXPECT_TRUE(AwaitMarked(mark, 0));
}

TEST_F(FilesTest, ALauncherEndsWithItsClient) {
  if (!is_launched()) GTEST_SKIP() << "there is no launcher";
  const StartedRun run = Start();
  ASSERT_NE(run, nullptr);
  runtime_.reset();
  EXPECT_EQ(EndOfLauncher(), 0);
  const Result<CommandOutcome> outcome = run->Execute(Shell("sleep 300"), CommandIo::Capture(), Within(30'000));
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->ending, Ending::kLost);
  EXPECT_FALSE(run->Collect({"/scratch/**"}));
}

TEST_F(FilesTest, ALostLauncherIsAnErrorOfTheNextStartToo) {
  if (!is_launched()) GTEST_SKIP() << "there is no launcher";
  ::kill(launcher_, SIGKILL);
  EXPECT_EQ(EndOfLauncher(), -SIGKILL);
  const Result<StartedRun> run = runtime_->Start(Plan());
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().errno_value, ECONNRESET);
}

}  // namespace
}  // namespace caisson::runtime
