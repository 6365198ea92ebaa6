#include "intake/tree_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace caisson::intake {
namespace {

using policy::FileKind;

Limits Small() {
  Limits limits;
  limits.entries = 6;
  limits.bytes = 100;
  limits.file_bytes = 60;
  limits.path_bytes = 12;
  limits.depth = 3;
  limits.ratio = 10;
  limits.ratio_free = 20;
  return limits;
}

class Tree {
 public:
  explicit Tree(const Limits& limits = Small(), uint64_t archive_bytes = 1000) : rules_(limits, archive_bytes) {}

  std::string File(const std::string& path, uint64_t bytes = 0) {
    const std::string fault = Text(rules_.Enter(path, FileKind::kRegular));
    return fault != "ok" || bytes == 0 ? fault : Grow(path, bytes);
  }
  std::string Directory(const std::string& path) { return Text(rules_.Enter(path, FileKind::kDirectory)); }
  std::string Link(const std::string& path, const std::string& target) {
    return Text(rules_.Enter(path, FileKind::kSymlink, target));
  }
  std::string Grow(const std::string& path, uint64_t bytes) { return Text(rules_.Grow(path, bytes)); }
  std::vector<std::string> Implied() const { return rules_.ImpliedDirectories(); }

 private:
  static std::string Text(const Status& status) {
    if (status) return "ok";
    EXPECT_EQ(status.error().kind, ErrorKind::kInvalid);
    return status.error().message;
  }
  TreeRules rules_;
};

TEST(TreeRules, TakeAnOrdinaryTree) {
  Tree tree;
  EXPECT_EQ(tree.File("a", 10), "ok");
  EXPECT_EQ(tree.File("d/e/f"), "ok");
  EXPECT_EQ(tree.Directory("d"), "ok");
  EXPECT_EQ(tree.Link("d/l", "../a"), "ok");
  EXPECT_EQ(tree.Implied(), std::vector<std::string>{"d/e"});
}

TEST(TreeRules, RefuseNamesThatMeanAnotherPlace) {
  const std::string nul("a\0b", 3);
  for (const std::string& name : {std::string(), std::string("/a"), std::string("../a"), std::string("a/../b"),
                                  std::string("."), std::string("a/."), std::string("a//b"), std::string("a/"), nul}) {
    EXPECT_NE(Tree().File(name), "ok") << name;
    EXPECT_NE(Tree().Directory(name), "ok") << name;
  }
  EXPECT_EQ(Tree().File("a\xFF"), "\"a\\xff\": the name is not UTF-8");
  EXPECT_EQ(Tree().File("0123456789abc"), "\"0123456789abc\": the name is longer than 12 bytes");
  EXPECT_EQ(Tree().File("a/b/c/d"), "ok");
  EXPECT_EQ(Tree().File("a/b/c/d/e"), "\"a/b/c/d/e\": nested deeper than 3 directories");
}

TEST(TreeRules, RefuseLinksThatLeaveTheTree) {
  Tree tree;
  EXPECT_EQ(tree.Link("a", "/etc"), "\"a\": is a link to an absolute path, \"/etc\"");
  EXPECT_EQ(tree.Link("a", ".."), "\"a\": is a link that leaves the tree");
  EXPECT_EQ(tree.Link("a", "b/../.."), "\"a\": is a link that leaves the tree");
  EXPECT_EQ(tree.Link("d/a", "../../x"), "\"d/a\": is a link that leaves the tree");
  EXPECT_EQ(tree.Link("d/a", "..//./../x"), "\"d/a\": is a link that leaves the tree");
  EXPECT_NE(tree.Link("a", ""), "ok");
  EXPECT_NE(tree.Link("a", std::string("b\0", 2)), "ok");
  EXPECT_NE(tree.Link("a", "\xFF"), "ok");
  EXPECT_EQ(tree.Link("a", "b/.."), "ok");
  EXPECT_EQ(tree.Link("d/a", "../x/./y"), "ok");
  EXPECT_EQ(tree.Link("dangling", "x"), "ok");
}

TEST(TreeRules, RefuseASecondOfAName) {
  Tree tree;
  EXPECT_EQ(tree.File("a"), "ok");
  EXPECT_EQ(tree.File("a"), "\"a\": is in the archive twice");
  EXPECT_EQ(tree.Directory("a"), "\"a\": is in the archive twice");
  EXPECT_EQ(tree.Directory("d"), "ok");
  EXPECT_EQ(tree.Directory("d"), "\"d\": is in the archive twice");
  EXPECT_EQ(tree.File("A"), "ok");
}

TEST(TreeRules, RefuseWhatLiesBelowAFileOrLink) {
  Tree tree;
  EXPECT_EQ(tree.File("f"), "ok");
  EXPECT_EQ(tree.Link("l", "f"), "ok");
  EXPECT_EQ(tree.File("f/x"), "\"f/x\": lies below \"f\", which is a file");
  EXPECT_EQ(tree.File("l/x"), "\"l/x\": lies below \"l\", which is a link");
  EXPECT_EQ(tree.Directory("l/x/y"), "\"l/x/y\": lies below \"l\", which is a link");
  EXPECT_EQ(tree.File("d/x"), "ok");
  EXPECT_EQ(tree.Link("d", "f"), "\"d\": is no directory, but others lie below it");
  EXPECT_EQ(tree.File("d"), "\"d\": is no directory, but others lie below it");
}

TEST(TreeRules, CountEntriesAndTheDirectoriesTheyImply) {
  Tree tree;
  EXPECT_EQ(tree.File("a/b/c"), "ok");
  EXPECT_EQ(tree.File("a/b/d"), "ok");
  EXPECT_EQ(tree.Directory("a"), "ok");
  EXPECT_EQ(tree.File("x"), "ok");
  EXPECT_EQ(tree.File("y/z"), "\"y/z\": the archive has more than 6 entries");
  EXPECT_NE(tree.File("z"), "ok");
}

TEST(TreeRules, CountBytes) {
  Tree tree;
  EXPECT_EQ(tree.File("a", 60), "ok");
  EXPECT_EQ(tree.Grow("a", 1), "\"a\": is larger than 60 B");
  EXPECT_EQ(tree.File("b", 40), "ok");
  EXPECT_EQ(tree.File("c", 1), "\"c\": the archive unpacks to more than 100 B");
  EXPECT_EQ(tree.Grow("c", ~uint64_t{0}), "\"c\": is larger than 60 B");
  EXPECT_EQ(tree.Directory("d"), "ok");
  EXPECT_EQ(tree.Grow("d", 1), "\"d\": may not hold bytes");
  EXPECT_EQ(tree.Grow("nowhere", 1), "\"nowhere\": may not hold bytes");
}

TEST(TreeRules, NoticeBombs) {
  Tree tree(Small(), 5);
  EXPECT_EQ(tree.File("a", 20), "ok");
  EXPECT_EQ(tree.File("b", 39), "ok");
  EXPECT_EQ(tree.Grow("b", 1), "\"b\": the archive of 5 B unpacks to more than 10 times its size");
}

TEST(Limits, AreReadAsTheyAreWritten) {
  const std::string text = Format(Small());
  EXPECT_EQ(text, "6,100,60,12,3,10,20");
  ASSERT_TRUE(ParseLimits(text));
  EXPECT_EQ(Format(*ParseLimits(text)), text);
  for (const char* wrong : {"", "1", "6,100,60,12,3,10", "6,100,60,12,3,10,20,", "6,100,60,12,3,10,-1",
                            "6,,60,12,3,10,20", "6,100,60,12,3,10,99999999999999999999"}) {
    EXPECT_FALSE(ParseLimits(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace caisson::intake
