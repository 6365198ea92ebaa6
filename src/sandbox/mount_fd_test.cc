#include "sandbox/mount_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace caisson::sandbox {
namespace {

namespace fs = std::filesystem;

// A tree with links to a directory beside it, which must stay empty.
class MountPointTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-place-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    fs::create_directories(root_ / "tree/there/deep");
    fs::create_directory(root_ / "outside");
    std::ofstream(root_ / "tree/file") << "x";
    ASSERT_EQ(::mkfifo((root_ / "tree/pipe").c_str(), 0666), 0);
    fs::create_symlink(root_ / "outside", root_ / "tree/out");
    fs::create_symlink(root_ / "outside", root_ / "tree/there/out");
    fs::create_symlink(root_ / "outside/ghost", root_ / "tree/ghost");
    fs::create_symlink("there", root_ / "tree/inner");
    fs::create_symlink("/proc/self/root", root_ / "tree/magic");
    tree_ = UniqueFd(::open((root_ / "tree").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(root_ / "outside"));
    fs::remove_all(root_);
  }

  // Returns 0, or the errno of the refused mount point.
  int Fault(const std::string& path, bool directory, bool may_make) {
    errno = 0;
    const UniqueFd place = OpenMountPoint(tree_.get(), path.c_str(), directory, may_make);
    if (!place) return errno;
    struct stat opened {
    }, named{};
    EXPECT_EQ(::fstat(place.get(), &opened), 0);
    EXPECT_EQ(::lstat((root_ / "tree" / path).c_str(), &named), 0);
    EXPECT_EQ(opened.st_ino, named.st_ino);
    EXPECT_EQ(S_ISDIR(opened.st_mode), directory);
    return 0;
  }

  fs::path root_;
  UniqueFd tree_;
};

TEST_F(MountPointTest, OpensAndMakes) {
  EXPECT_EQ(Fault("there", true, false), 0);
  EXPECT_EQ(Fault("there/deep", true, false), 0);
  EXPECT_EQ(Fault("file", false, false), 0);
  for (const bool directory : {true, false}) {
    for (const std::string path : {"new", "there/new", "a/b/c"}) {
      const std::string name = path + (directory ? "d" : "f");
      EXPECT_EQ(Fault(name, directory, false), ENOENT) << name;
      EXPECT_FALSE(fs::exists(root_ / "tree" / name));
      EXPECT_EQ(Fault(name, directory, true), 0) << name;
      EXPECT_EQ(Fault(name, directory, true), 0) << name;  // again
    }
  }
}

TEST_F(MountPointTest, FollowsNoLink) {
  const std::string outside = (root_ / "outside").string();
  for (const std::string& path :
       {std::string("out"), std::string("out/new"), std::string("out/a/b"), std::string("there/out/new"),
        std::string("ghost"), std::string("inner"), std::string("inner/new"), std::string("inner/deep"),
        std::string("magic"), "magic" + outside + "/new"}) {
    for (const bool directory : {true, false}) {
      for (const bool may_make : {true, false}) EXPECT_EQ(Fault(path, directory, may_make), ELOOP) << path;
    }
  }
}

TEST_F(MountPointTest, NeverLeavesTheTree) {
  for (const std::string path : {"..", "../outside/new", "there/../../outside/new", "/tmp"}) {
    for (const bool may_make : {true, false}) EXPECT_NE(Fault(path, true, may_make), 0) << path;
  }
}

TEST_F(MountPointTest, TakesOnlyTheRightKind) {
  for (const bool may_make : {true, false}) {
    EXPECT_EQ(Fault("file", true, may_make), ENOTDIR);
    EXPECT_EQ(Fault("there", false, may_make), EISDIR);
    EXPECT_EQ(Fault("file/below", true, may_make), ENOTDIR);
    for (const bool directory : {true, false}) {
      EXPECT_EQ(Fault("pipe", directory, may_make), ENOTSUP);
      EXPECT_EQ(Fault("pipe/below", directory, may_make), ENOTDIR);
    }
  }
  EXPECT_EQ(Fault(std::string(300, 'x'), true, true), ENAMETOOLONG);
}

TEST_F(MountPointTest, MakesDirectoriesWithoutFollowingLinks) {
  EXPECT_TRUE(MakeDirectories(tree_.get(), "there/a/b"));
  EXPECT_TRUE(fs::is_directory(root_ / "tree/there/a/b"));
  EXPECT_TRUE(MakeDirectories(tree_.get(), "there/a/b"));
  for (const char* path : {"out", "out/a", "there/out/a/b", "inner/a", "ghost/a"}) {
    errno = 0;
    EXPECT_FALSE(MakeDirectories(tree_.get(), path)) << path;
    EXPECT_TRUE(errno == ELOOP || errno == ENOTDIR) << path << ": " << errno;
  }
  EXPECT_FALSE(MakeDirectories(tree_.get(), "../outside/a"));
  EXPECT_FALSE(MakeDirectories(tree_.get(), "file/a"));
}

}  // namespace
}  // namespace caisson::sandbox
