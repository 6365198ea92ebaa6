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

Command Shell(const std::string& script) { return {{"/bin/sh", "-c", script}, {"PATH=/usr/bin:/bin"}, "/workspace"}; }

// Leaves a trace on the host if the workload ever runs.
constexpr char kTrace[] = "echo ran > /trace/ran; echo out";

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
  // Other sandboxes may be running on this machine: only groups of free slots can belong to this test.
  for (const int slot : LimitGroup::ListSlots(host)) {
    if (Slot::AcquireNumber(Slot::DefaultDirectory(), slot)) groups.push_back(std::to_string(slot));
  }
  return groups;
}

class SetupFaultTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    // A directory of this test alone, to which no policy refers.
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
    if (sandbox) (void)(*sandbox)->Run(Shell(kTrace), CommandIo::Capture(), {});
    ASSERT_FALSE(sandbox) << "the sandbox was built although a wall was missing";
    EXPECT_NE(sandbox.error().message.find(std::string("wall ") + GetParam()), std::string::npos)
        << sandbox.error().message;
    EXPECT_EQ(sandbox.error().errno_value, EIO);
  }
  EXPECT_NE(::access((directory_ + "/ran").c_str(), F_OK), 0) << "the workload ran";
  EXPECT_EQ(Mounts(), mounts);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  // A killed run of another process on this machine may still await its cleanup process; a leaked group of this test
  // stays.
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

// The control: without a fault the same workload does run, so the tests above can fail.
TEST_F(SetupFaultTest, ControlRuns) {
  Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(SmallSpec(directory_));
  ASSERT_TRUE(sandbox) << sandbox.error().message;
  RunOptions options;
  options.timeout_ms = 10'000;
  Result<CommandOutcome> outcome = (*sandbox)->Run(Shell(kTrace), CommandIo::Capture(), options);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->ending, Ending::kExited);
  EXPECT_EQ(outcome->exit_code, 0) << outcome->stderr_stream.head;
  EXPECT_EQ(outcome->stdout_stream.head, "out\n");
  EXPECT_EQ(::access((directory_ + "/ran").c_str(), F_OK), 0);
}

TEST_F(SetupFaultTest, SeveralCommandsShareScratchAndNothingElse) {
  Spec spec = SmallSpec(directory_);
  spec.mounts.clear();
  Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
  ASSERT_TRUE(sandbox) << sandbox.error().message;
  RunOptions options;
  options.timeout_ms = 10'000;
  Result<CommandOutcome> first =
      (*sandbox)->Run(Shell("echo kept > /scratch/file; sleep 1000 & echo first"), CommandIo::Capture(), options);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->left_processes);
  options.last = true;
  Result<CommandOutcome> outcome = (*sandbox)->Run(
      Shell(
          "cat /scratch/file; for p in /proc/[0-9]*; do [ $p = /proc/1 ] || [ $p = /proc/$$ ] || echo alive $p; done"),
      CommandIo::Capture(), options);
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

// Specs that a client of a launcher can send and admission would refuse: links among the files of the workspace, and
// among the host's paths, with something below them. The sandbox must create nothing where the links point.
class LinkedSpecTest : public SetupFaultTest {
 protected:
  void SetUp() override {
    SetupFaultTest::SetUp();
    ::chmod(directory_.c_str(), 0777);
    // Outside /tmp, because every sandbox has its own /tmp. A sandbox must not create this path when the host lacks it.
    char path[] = "/var/tmp/caisson-setup-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    shown_ = path;
    ::chmod(path, 0755);
    ASSERT_EQ(::symlink(directory_.c_str(), (shown_ + "/link").c_str()), 0);
  }
  void TearDown() override {
    EXPECT_TRUE(Entries(directory_, "x").empty());
    ::unlink((shown_ + "/link").c_str());
    ::rmdir(shown_.c_str());
    ::rmdir((directory_ + "/x").c_str());
    SetupFaultTest::TearDown();
  }
  std::string shown_;
};

TEST_F(LinkedSpecTest, FilesBelowALinkAreNotMade) {
  for (const bool writable : {false, true}) {
    for (const FileKind kind : {FileKind::kRegular, FileKind::kDirectory, FileKind::kSymlink}) {
      for (const char* path : {"link/x", "link/x/y"}) {
        Spec spec = SmallSpec(directory_);
        spec.mounts.clear();
        spec.workspace_files_writable = writable;
        spec.workspace_files = {{"link", directory_, 0777, FileKind::kSymlink}, {path, "text", 0644, kind}};
        const Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
        ASSERT_FALSE(sandbox) << path;
        EXPECT_NE(sandbox.error().message.find("wall workspace"), std::string::npos) << sandbox.error().message;
        EXPECT_EQ(Entries(directory_, "x"), std::vector<std::string>()) << path;
      }
    }
  }
}

TEST_F(LinkedSpecTest, HostPathsBelowALinkAreNotMade) {
  ASSERT_EQ(::mkdir((directory_ + "/there").c_str(), 0755), 0);
  for (const bool etc : {false, true}) {
    Spec spec = SmallSpec(directory_);
    spec.mounts.clear();
    (etc ? spec.etc_paths : spec.system_paths).push_back(shown_ + "/link");
    (etc ? spec.etc_paths : spec.system_paths).push_back(shown_ + "/link/there");
    const Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
    ASSERT_FALSE(sandbox);
    EXPECT_EQ(sandbox.error().errno_value, ELOOP) << sandbox.error().message;
  }
  ::rmdir((directory_ + "/there").c_str());
}

// When a host tree covers a copy-on-write tree, a mount point would be created in the host tree.
TEST_F(LinkedSpecTest, NothingIsMadeInATreeThatCoversAnother) {
  ASSERT_EQ(::mkdir((directory_ + "/b").c_str(), 0777), 0);
  Spec spec = SmallSpec(directory_);
  const auto add = [&](const char* target, Access access) {
    Mount mount;
    mount.source = UniqueFd(::open(directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    mount.source_path = directory_;
    mount.target = target;
    mount.access = access;
    spec.mounts.push_back(std::move(mount));
  };
  add("/a/b", Access::kCopyOnWrite);
  add("/a", Access::kReadWrite);
  add("/a/b/x", Access::kReadOnly);
  const Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
  EXPECT_EQ(Entries(directory_ + "/b", "x"), std::vector<std::string>());
  ::rmdir((directory_ + "/b/x").c_str());
  ::rmdir((directory_ + "/b").c_str());
  ASSERT_FALSE(sandbox);
  EXPECT_EQ(sandbox.error().kind, ErrorKind::kDenied) << sandbox.error().message;
}

TEST_F(LinkedSpecTest, TargetsInSystemTreesAreRefused) {
  for (const char* target : {"/usr", "/usr/lib", "/etc/x", "/dev/x", "/proc/x", "/lib64/x"}) {
    Spec spec = SmallSpec(directory_);
    spec.mounts[0].target = target;
    const Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
    ASSERT_FALSE(sandbox) << target;
    EXPECT_EQ(sandbox.error().kind, ErrorKind::kDenied);
    EXPECT_NE(sandbox.error().message.find(std::string("target ") + target), std::string::npos)
        << sandbox.error().message;
  }
}

}  // namespace
}  // namespace caisson::sandbox
