#include "image/tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "image/import.h"

namespace caisson::image {
namespace {

namespace fs = std::filesystem;

class Tree : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-test-tree-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    ASSERT_EQ(::mkdir((top_ + "/root").c_str(), 0755), 0);
  }
  void TearDown() override {
    const UniqueFd parent(::open(top_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(RemoveTree(parent.get(), "root"));
    EXPECT_EQ(::rmdir(top_.c_str()), 0) << "something was written beside the tree";
  }
  TreeBuilder Builder(const intake::Limits& limits = kDefaultLimits) const {
    return TreeBuilder(UniqueFd(::open((top_ + "/root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), limits);
  }
  static Status Put(TreeBuilder& tree, const std::string& path, const std::string& bytes, bool executable = false) {
    Status put = tree.OnFile(path, executable, 1234567890);
    if (put) put = tree.OnBytes(bytes);
    return put ? tree.OnEnd() : put;
  }
  std::string Read(const std::string& path) const {
    std::ifstream file(top_ + "/root/" + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string top_;
};

TEST_F(Tree, NamesThatLeadOut) {
  TreeBuilder tree = Builder();
  for (const char* path : {"..", "../x", "a/../../x", "a/.."}) {
    EXPECT_FALSE(Put(tree, path, "x")) << path;
    EXPECT_FALSE(tree.OnDirectory(path)) << path;
    EXPECT_FALSE(tree.OnSymlink(path, "x")) << path;
    EXPECT_FALSE(tree.OnHardLink(path, "x")) << path;
    EXPECT_FALSE(tree.OnHardLink("ok", path)) << path;
  }
  EXPECT_FALSE(Put(tree, "/", "x"));
  EXPECT_FALSE(tree.OnSymlink(".", "x"));
  EXPECT_TRUE(Put(tree, "/absolute", "x"));
  EXPECT_EQ(Read("absolute"), "x");
}

TEST_F(Tree, LinksAreResolvedWithinTheTree) {
  TreeBuilder tree = Builder();
  ASSERT_TRUE(tree.OnSymlink("out", top_));
  ASSERT_TRUE(Put(tree, "out/file", "inside"));
  EXPECT_EQ(Read(top_.substr(1) + "/file"), "inside");
  EXPECT_FALSE(fs::exists(top_ + "/file"));
  ASSERT_TRUE(tree.OnSymlink("up", "../../../../.."));
  ASSERT_TRUE(Put(tree, "up/top", "inside"));
  EXPECT_EQ(Read("top"), "inside");
  ASSERT_TRUE(tree.OnSymlink("a", "b"));
  ASSERT_TRUE(tree.OnSymlink("b", "a"));
  EXPECT_FALSE(Put(tree, "a/x", "x"));
  // The last component is replaced, not followed.
  ASSERT_TRUE(Put(tree, "out", "a file"));
  EXPECT_EQ(Read("out"), "a file");
}

TEST_F(Tree, WhiteoutsConcernLowerLayers) {
  TreeBuilder tree = Builder();
  tree.BeginLayer(true);
  ASSERT_TRUE(Put(tree, "d/lower", "x"));
  ASSERT_TRUE(Put(tree, "e/lower", "x"));
  tree.BeginLayer(true);
  ASSERT_TRUE(Put(tree, "d/upper", "x"));
  ASSERT_TRUE(Put(tree, "d/.wh..wh..opq", ""));
  ASSERT_TRUE(Put(tree, "e/new", "x"));
  ASSERT_TRUE(Put(tree, "e/.wh.new", ""));
  ASSERT_TRUE(Put(tree, "e/.wh.lower", ""));
  EXPECT_FALSE(Put(tree, "e/.wh...", ""));
  EXPECT_FALSE(Put(tree, "e/.wh.", ""));
  EXPECT_EQ(Read("d/upper") + Read("e/new"), "xx");
  EXPECT_FALSE(fs::exists(top_ + "/root/d/lower") || fs::exists(top_ + "/root/e/lower"));
}

TEST_F(Tree, BoundsHoldForAllLayersTogether) {
  intake::Limits limits = kDefaultLimits;
  limits.entries = 4;
  limits.bytes = 10;
  TreeBuilder tree = Builder(limits);
  tree.BeginLayer(true);
  ASSERT_TRUE(Put(tree, "a", "12345"));
  tree.BeginLayer(true);
  EXPECT_FALSE(Put(tree, "a", "123456"));
  ASSERT_TRUE(tree.OnEnd());
  ASSERT_TRUE(tree.OnDirectory("b"));
  EXPECT_FALSE(tree.OnDirectory("c/d/e/f"));
}

TEST_F(Tree, ContentsAndModes) {
  TreeBuilder tree = Builder();
  ASSERT_TRUE(Put(tree, "usr/bin/program", "x", true));
  ASSERT_TRUE(tree.OnHardLink("usr/bin/same", "usr/bin/program"));
  ASSERT_TRUE(tree.OnSymlink("bin", "usr/bin"));
  ASSERT_TRUE(Put(tree, "etc/passwd", "y"));
  for (const char* name : {"var", "home", "proc", "dev", "tmp", ".cover"}) ASSERT_TRUE(tree.OnDirectory(name));
  ASSERT_TRUE(tree.OnLeftOut("dev/null", "a device"));
  const auto contents = tree.Finish();
  ASSERT_TRUE(contents) << contents.error().message;
  std::string shown;
  for (const policy::RootEntry& entry : contents->entries)
    shown += entry.name + std::to_string(static_cast<int>(entry.kind)) + " ";
  EXPECT_EQ(shown, "bin3 etc4 home2 usr0 ");
  EXPECT_EQ(contents->left_out_count, 1U);
  EXPECT_EQ(contents->bytes, 3U);
  struct stat info {};
  ASSERT_EQ(::stat((top_ + "/root/usr/bin/program").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0555U);
  EXPECT_EQ(info.st_mtim.tv_sec, 1234567890);
  ASSERT_EQ(::stat((top_ + "/root/usr").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0555U);
}

}  // namespace
}  // namespace caisson::image
