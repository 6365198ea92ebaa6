#include "sandbox/inside_paths.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "linux/syscalls.h"

namespace caisson::sandbox {
namespace {

TEST(NormalizePath, CollapsesDotsAndSlashes) {
  EXPECT_EQ(NormalizePath("/a/./b//../c/"), "/a/c");
  EXPECT_EQ(NormalizePath("/../../x"), "/x");
  EXPECT_EQ(NormalizePath("/"), "/");
  EXPECT_EQ(NormalizePath(""), "/");
}

TEST(IsBelow, KnowsLookAlikes) {
  EXPECT_TRUE(IsBelow("/scratch", "/scratch"));
  EXPECT_TRUE(IsBelow("/scratch/a", "/scratch"));
  EXPECT_FALSE(IsBelow("/scratch2/a", "/scratch"));
  EXPECT_FALSE(IsBelow("/scratc", "/scratch"));
}

// A tree that is the root of a mount, like a sandbox's: the kernel names files in it from there.
class InsidePathsTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-paths-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    host_ = std::filesystem::canonical(path);
    std::filesystem::create_directories(host_ / "workspace/sub");
    std::filesystem::create_directories(host_ / "scratch");
    std::ofstream(host_ / "workspace/file") << "x";
    std::filesystem::create_symlink("/workspace/file", host_ / "scratch/link");
    std::filesystem::create_directory_symlink("/workspace/sub", host_ / "scratch/dir");
    std::filesystem::create_symlink("/scratch/link2", host_ / "scratch/link2");
    std::filesystem::create_symlink("/nowhere/new", host_ / "scratch/dangling");
    root_ = CloneTree();
    if (!root_ && errno == EPERM && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) root_ = CloneTree();
    if (!root_) GTEST_SKIP() << "a mount cannot be made here: " << std::strerror(errno);
    paths_ = std::make_unique<InsidePaths>(UniqueFd(::fcntl(root_.get(), F_DUPFD_CLOEXEC, 3)),
                                           std::vector<std::string>{"/scratch"});
  }
  void TearDown() override { std::filesystem::remove_all(host_); }

  UniqueFd CloneTree() { return UniqueFd(::open_tree(AT_FDCWD, host_.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)); }
  UniqueFd OpenInside(const std::string& path) {
    struct open_how how {};
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT;
    return UniqueFd(linux_sys::OpenAt2(root_.get(), path.c_str(), how));
  }
  InsidePaths::Resolved ResolveAll(const std::string& base, const std::string& path, bool follow,
                                   bool in_root = false) {
    const UniqueFd directory = OpenInside(base.empty() ? "/" : base);
    return paths_->Resolve({::getpid(), directory.get(), in_root}, path, follow);
  }
  std::string Resolve(const std::string& base, const std::string& path, bool follow) {
    return ResolveAll(base, path, follow).path;
  }

  std::filesystem::path host_;
  UniqueFd root_;
  std::unique_ptr<InsidePaths> paths_;
};

TEST_F(InsidePathsTest, FollowsLinksInsideTheRoot) {
  EXPECT_EQ(Resolve("", "/scratch/link", true), "/workspace/file");
  EXPECT_EQ(Resolve("", "/scratch/link", false), "/scratch/link");
  EXPECT_EQ(Resolve("/scratch", "dir/new", true), "/workspace/sub/new");
  EXPECT_EQ(Resolve("/scratch", "dir/../new", true), "/workspace/new");
}

TEST_F(InsidePathsTest, SurvivesLoopsAndMissingParents) {
  EXPECT_EQ(ResolveAll("", "/scratch/link2", true).error, ELOOP);
  EXPECT_EQ(Resolve("", "/no/such/place", true), "/no/such/place");
  EXPECT_EQ(Resolve("", "/../../etc/passwd", true), "/etc/passwd");
}

TEST_F(InsidePathsTest, TellsWhatIsThereFromWhatIsNot) {
  using Presence = InsidePaths::Presence;
  EXPECT_EQ(ResolveAll("", "/workspace/file", true).presence, Presence::kThere);
  EXPECT_EQ(ResolveAll("", "/scratch/link", true).presence, Presence::kThere);
  EXPECT_EQ(ResolveAll("", "/workspace/new", true).presence, Presence::kMissing);
  const auto dangling = ResolveAll("", "/scratch/dangling", true);
  EXPECT_EQ(dangling.presence, Presence::kMissing);
  EXPECT_EQ(dangling.path, "/nowhere/new");
}

TEST_F(InsidePathsTest, RootCanBeADirectoryOfTheCaller) {
  EXPECT_EQ(ResolveAll("/workspace", "/file", true, true).path, "/workspace/file");
  EXPECT_EQ(ResolveAll("/workspace", "/../../new", true, true).path, "/workspace/new");
  EXPECT_EQ(ResolveAll("/scratch", "dir/new", true, true).path, "/scratch/workspace/sub/new");
}

TEST_F(InsidePathsTest, WalksWhereNoTextReaches) {
  // Deeper than PATH_MAX, so the test creates and enters it step by step.
  UniqueFd directory = OpenInside("/scratch");
  const std::string name(200, 'd');
  for (int depth = 0; depth < 30; ++depth) {
    ASSERT_EQ(::mkdirat(directory.get(), name.c_str(), 0755), 0);
    directory = UniqueFd(::openat(directory.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(directory);
  }
  std::string up;
  for (int depth = 0; depth < 30; ++depth) up += "../";
  const InsidePaths::From from{::getpid(), directory.get()};
  EXPECT_EQ(paths_->Resolve(from, up + "link", true).path, "/workspace/file");
  EXPECT_EQ(paths_->Resolve(from, up + "../workspace/new", true).path, "/workspace/new");
  // The test's tree is a single mount, so the reported place is the first of that mount.
  EXPECT_EQ(paths_->Resolve(from, "new", true).path, "/scratch/…/new");
  EXPECT_EQ(paths_->OfDescriptor(::getpid(), directory.get()).path, "/scratch/…");
}

TEST_F(InsidePathsTest, WalksFromADirectoryThatIsGone) {
  ASSERT_EQ(::mkdirat(root_.get(), "scratch/gone", 0755), 0);
  const UniqueFd directory = OpenInside("/scratch/gone");
  ASSERT_EQ(::unlinkat(root_.get(), "scratch/gone", AT_REMOVEDIR), 0);
  EXPECT_EQ(paths_->Resolve({::getpid(), directory.get()}, "../link", true).path, "/workspace/file");
}

TEST_F(InsidePathsTest, GivesUpOnPathsThatAreMadeToBeExpensive) {
  std::string far;
  for (int i = 0; i < 500; ++i) far += "sub/../";
  ASSERT_EQ(::symlinkat((far + "sub").c_str(), root_.get(), "workspace/far"), 0);
  EXPECT_EQ(Resolve("/workspace", "far/../far/new", true), "/workspace/sub/new");
  std::string farther;
  for (int i = 0; i < 8; ++i) farther += "far/../";
  EXPECT_FALSE(ResolveAll("/workspace", farther + "new", true).named);
  // More links than the kernel follows: the kernel's error is reported.
  std::string links;
  for (int i = 0; i < 50; ++i) links += "dir/../../scratch/";
  EXPECT_EQ(ResolveAll("/scratch", links + "new", true).error, ELOOP);
}

TEST_F(InsidePathsTest, AClosedDescriptorIsTheKernelsError) {
  EXPECT_EQ(paths_->Resolve({::getpid(), 9999}, "x", true).error, EBADF);
  EXPECT_EQ(paths_->OfDescriptor(::getpid(), 9999).error, EBADF);
  EXPECT_EQ(paths_->OfDescriptor(::getpid(), AT_FDCWD).error, 0);
}

TEST_F(InsidePathsTest, DescriptorNamesAreWhatTheyReferTo) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto pipe = paths_->OfDescriptor(::getpid(), ends[1]);
  EXPECT_FALSE(pipe.is_file_system);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace caisson::sandbox
