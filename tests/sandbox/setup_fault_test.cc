// Fails each set-up step in turn: the workload must not run, nothing may be left behind, and the error names the step.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sandbox/sandbox.h"

namespace caisson::sandbox {
namespace {

Spec SmallSpec(const std::string& marker_directory) {
  Spec spec;
  spec.seccomp = FindSeccompProgram("balanced");
  spec.seccomp_watched = FindSeccompProgram("balanced-watched");
  spec.limits = {int64_t{64} << 20, 16, 2000, 65536, int64_t{8} << 20, 256};
  spec.allow_watched_limits = true;
  spec.masked_files = {"keys"};
  spec.masked_directories = {"fs"};
  Command command;
  // Leaves a trace on the host if it ever runs.
  command.argv = {"/bin/sh", "-c", "echo ran > /trace/ran; echo out"};
  command.env = {"PATH=/usr/bin:/bin"};
  command.cwd = "/workspace";
  spec.commands.push_back(std::move(command));
  Mount mount;
  mount.source = UniqueFd(::open(marker_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  mount.source_path = marker_directory;
  mount.target = "/trace";
  mount.access = Access::kReadWrite;
  spec.mounts.push_back(std::move(mount));
  spec.system_paths = {"/usr", "/bin", "/lib", "/lib64"};
  spec.devices = {"null"};
  return spec;
}

std::vector<std::string> Entries(const std::string& directory, const std::string& prefix) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(directory.c_str());
  while (const dirent* entry = stream != nullptr ? ::readdir(stream) : nullptr) {
    if (std::string(entry->d_name).compare(0, prefix.size(), prefix) == 0) names.push_back(entry->d_name);
  }
  if (stream != nullptr) ::closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

std::string Mounts() {
  std::ifstream file("/proc/self/mountinfo");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

size_t OpenDescriptors() { return Entries("/proc/self/fd", "").size(); }

std::vector<std::string> OwnGroups() {
  std::vector<std::string> groups;
  const CgroupHost host = ProbeCgroups();
  // Other sandboxes may be running on this machine: only groups of free slots would be ours.
  for (const int slot : LimitGroup::ListSlots(host)) {
    if (Slot::AcquireNumber(Slot::DefaultDirectory(), slot)) groups.push_back(std::to_string(slot));
  }
  return groups;
}

class SetupFaultTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    // The home of nobody's policy: a directory of the test's own.
    char path[] = "/tmp/caisson-setup-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override {
    ::unlink((directory_ + "/ran").c_str());
    ::rmdir(directory_.c_str());
  }
  std::string directory_;
};

TEST_P(SetupFaultTest, FailsClosedAndLeavesNothing) {
  const std::string mounts = Mounts();
  const size_t descriptors = OpenDescriptors();
  {
    Spec spec = SmallSpec(directory_);
    spec.fail_step = GetParam();
    Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
    ASSERT_FALSE(sandbox) << "the sandbox was built although a wall was missing";
    EXPECT_NE(sandbox.error().message.find(std::string("wall ") + GetParam()), std::string::npos)
        << sandbox.error().message;
    EXPECT_EQ(sandbox.error().errno_value, EIO);
  }
  EXPECT_NE(::access((directory_ + "/ran").c_str(), F_OK), 0) << "the workload ran";
  EXPECT_EQ(Mounts(), mounts);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  // Another run on this machine may be between its death and its keeper's work; ours would stay.
  for (int tries = 0; tries < 200 && !OwnGroups().empty(); ++tries) ::usleep(10'000);
  EXPECT_EQ(OwnGroups(), std::vector<std::string>());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
}

std::vector<const char*> StepNames() {
  std::vector<const char*> names;
  for (const SetupStep& step : SetupSteps()) names.push_back(step.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(EveryStep, SetupFaultTest, testing::ValuesIn(StepNames()),
                         [](const testing::TestParamInfo<const char*>& step) { return std::string(step.param); });

// The control: with no fault the same workload does run, so the tests above can fail.
TEST_F(SetupFaultTest, ControlRuns) {
  Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(SmallSpec(directory_));
  ASSERT_TRUE(sandbox) << sandbox.error().message;
  RunOptions options;
  options.timeout_ms = 10'000;
  Result<CommandOutcome> outcome = (*sandbox)->Run(0, options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->ending, Ending::kExited);
  EXPECT_EQ(outcome->exit_code, 0) << outcome->stderr_stream.head;
  EXPECT_EQ(outcome->stdout_stream.head, "out\n");
  EXPECT_EQ(::access((directory_ + "/ran").c_str(), F_OK), 0);
}

TEST_F(SetupFaultTest, SeveralCommandsShareScratchAndNothingElse) {
  Spec spec = SmallSpec(directory_);
  spec.mounts.clear();
  spec.commands[0].argv = {"/bin/sh", "-c", "echo kept > /scratch/file; sleep 1000 & echo first"};
  Command second = spec.commands[0];
  second.argv = {
      "/bin/sh", "-c",
      "cat /scratch/file; for p in /proc/[0-9]*; do [ $p = /proc/1 ] || [ $p = /proc/$$ ] || echo alive $p; done"};
  spec.commands.push_back(std::move(second));
  Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
  ASSERT_TRUE(sandbox) << sandbox.error().message;
  RunOptions options;
  options.timeout_ms = 10'000;
  options.last = false;
  Result<CommandOutcome> first = (*sandbox)->Run(0, options);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->left_processes);
  options.last = true;
  Result<CommandOutcome> outcome = (*sandbox)->Run(1, options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->stdout_stream.head, "kept\n");
  EXPECT_FALSE(outcome->left_processes);
}

TEST_F(SetupFaultTest, SwappedMountSourceIsRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root mounts the judged descriptor itself; there is no second look to deceive";
  Spec spec = SmallSpec(directory_);
  const std::string moved = directory_ + "-moved";
  ASSERT_EQ(::rename(directory_.c_str(), moved.c_str()), 0);
  ASSERT_EQ(::mkdir(directory_.c_str(), 0755), 0);
  Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
  ::rmdir(moved.c_str());
  ASSERT_FALSE(sandbox);
  EXPECT_EQ(sandbox.error().errno_value, ESTALE) << sandbox.error().message;
}

}  // namespace
}  // namespace caisson::sandbox
