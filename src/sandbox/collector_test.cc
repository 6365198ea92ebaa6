#include "sandbox/collector.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/unique_fd.h"

namespace caisson::sandbox {
namespace {

TEST(MatchesGlob, StarsStayInTheirComponent) {
  EXPECT_TRUE(MatchesGlob("/scratch/a.txt", "/scratch/*.txt"));
  EXPECT_FALSE(MatchesGlob("/scratch/d/a.txt", "/scratch/*.txt"));
  EXPECT_TRUE(MatchesGlob("/scratch/d/e/a.txt", "/scratch/**/*.txt"));
  EXPECT_TRUE(MatchesGlob("/scratch/d/e/a.txt", "/scratch/**"));
  EXPECT_TRUE(MatchesGlob("/scratch/ab", "/scratch/?b"));
  EXPECT_FALSE(MatchesGlob("/scratch/a", "/scratch/b*"));
  EXPECT_FALSE(MatchesGlob("/scratch2/a", "/scratch/*"));
  EXPECT_TRUE(MatchesGlob("/scratch/aXbXc", "/scratch/a*b*c"));
}

TEST(MatchesGlob, HostilePatternsEndSoon) {
  const std::string path = "/scratch/" + std::string(2000, 'a');
  std::string glob = "/scratch/";
  for (int i = 0; i < 100; ++i) glob += "*a**a";
  EXPECT_FALSE(MatchesGlob(path, glob + "b"));
}

class CollectorTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-collect-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    std::ofstream(root_ / "plain") << "contents";
    std::filesystem::create_directories(root_ / "d/e");
    std::ofstream(root_ / "d/e/deep") << "deep";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  Collected Collect(CollectorLimits limits = {}) {
    UniqueFd directory(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    Collected collected;
    CollectFiles(
        directory.get(), "/scratch", [](const std::string&) { return true; }, limits, collected);
    return collected;
  }
  std::filesystem::path root_;
};

TEST_F(CollectorTest, TakesRegularFilesOfEveryDepth) {
  const Collected collected = Collect();
  ASSERT_EQ(collected.files.size(), 2U);
  for (const CollectedFile& file : collected.files) {
    EXPECT_EQ(file.bytes, file.path == "/scratch/plain" ? "contents" : "deep") << file.path;
  }
}

TEST_F(CollectorTest, NeverFollowsALink) {
  std::filesystem::create_symlink("/etc/passwd", root_ / "absolute");
  std::filesystem::create_symlink("plain", root_ / "relative");
  std::filesystem::create_directory_symlink("/etc", root_ / "tree");
  std::filesystem::create_hard_link(root_ / "plain", root_ / "second-name");
  const Collected collected = Collect();
  ASSERT_EQ(collected.files.size(), 1U);
  EXPECT_EQ(collected.files[0].path, "/scratch/d/e/deep");
  EXPECT_EQ(collected.skipped.size(), 5U);
}

// No process is alive when artifacts are read. Should that ever fail, the collector must still read nothing outside.
TEST_F(CollectorTest, HoldsOutAgainstSwapsWhileItWalks) {
  constexpr int kSwaps = 100'000;
  const std::filesystem::path outside = root_.string() + "-outside";
  std::filesystem::create_directories(outside / "e");
  std::ofstream(outside / "e/deep") << "secret";
  const std::string inside = root_ / "d", link = root_ / "link";
  std::filesystem::create_directory_symlink(outside, link);
  std::atomic<int> swaps = 0;
  std::thread swapper([&] {
    for (; swaps < kSwaps; ++swaps) ::renameat2(AT_FDCWD, inside.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE);
  });
  int walks = 0, found = 0;
  do {
    for (const CollectedFile& file : Collect().files) {
      EXPECT_NE(file.bytes, "secret");
      found += file.bytes == "deep" ? 1 : 0;
    }
    ++walks;
  } while (swaps < kSwaps);
  swapper.join();
  std::filesystem::remove_all(outside);
  EXPECT_GT(walks, 1);
  EXPECT_GT(found, 0);
}

TEST_F(CollectorTest, IsNotBlockedByAPipe) {
  ASSERT_EQ(::mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(Collect().files.size(), 2U);
}

TEST_F(CollectorTest, CountsBytesAsItReads) {
  { std::ofstream(root_ / "sparse"); }
  std::filesystem::resize_file(root_ / "sparse", uint64_t{1} << 40);
  CollectorLimits limits;
  limits.bytes = 1 << 20;
  const Collected collected = Collect(limits);
  EXPECT_EQ(collected.files.size(), 2U);
  ASSERT_EQ(collected.skipped.size(), 1U);
  EXPECT_NE(collected.skipped[0].find("larger than allowed"), std::string::npos);
}

TEST_F(CollectorTest, StopsAtItsLimits) {
  std::filesystem::path deep = root_;
  for (int i = 0; i < 100; ++i) deep /= "n";
  std::filesystem::create_directories(deep);
  std::ofstream(deep / "bottom") << "x";
  EXPECT_EQ(Collect().files.size(), 2U);
  CollectorLimits limits;
  limits.files = 1;
  EXPECT_EQ(Collect(limits).files.size(), 1U);
}

}  // namespace
}  // namespace caisson::sandbox
