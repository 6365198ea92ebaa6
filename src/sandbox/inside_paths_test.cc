#include "sandbox/inside_paths.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

// A tree that stands for a sandbox's root; links in it are resolved inside it.
class InsidePathsTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-paths-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = std::filesystem::canonical(path);
    std::filesystem::create_directories(root_ / "workspace/sub");
    std::filesystem::create_directories(root_ / "scratch");
    std::ofstream(root_ / "workspace/file") << "x";
    std::filesystem::create_symlink("/workspace/file", root_ / "scratch/link");
    std::filesystem::create_directory_symlink("/workspace/sub", root_ / "scratch/dir");
    std::filesystem::create_symlink("/scratch/link2", root_ / "scratch/link2");
    paths_ = std::make_unique<InsidePaths>(UniqueFd(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // Real paths come back with the stand-in root in front; a sandbox has none.
  std::string Resolve(const std::string& base, const std::string& path, bool follow) {
    const std::string resolved = paths_->Resolve(::getpid(), base, path, follow).path;
    return resolved.compare(0, root_.string().size(), root_.string()) == 0 ? resolved.substr(root_.string().size())
                                                                           : resolved;
  }

  std::filesystem::path root_;
  std::unique_ptr<InsidePaths> paths_;
};

TEST_F(InsidePathsTest, FollowsLinksInsideTheRoot) {
  EXPECT_EQ(Resolve("", "/scratch/link", true), "/workspace/file");
  EXPECT_EQ(Resolve("", "/scratch/link", false), "/scratch/link");
  EXPECT_EQ(Resolve("/scratch", "dir/new", true), "/workspace/sub/new");
  EXPECT_EQ(Resolve("/scratch", "dir/../new", true), "/workspace/new");
}

TEST_F(InsidePathsTest, SurvivesLoopsAndMissingParents) {
  EXPECT_EQ(Resolve("", "/scratch/link2", true), "/scratch/link2");
  EXPECT_EQ(Resolve("", "/no/such/place", true), "/no/such/place");
  EXPECT_EQ(Resolve("", "/../../etc/passwd", true), "/etc/passwd");
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
