#include "sandbox/private_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/unique_fd.h"

namespace caisson::sandbox {
namespace {

class PrivateCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-copy-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    std::filesystem::create_directories(root_ / "from/d/empty");
    std::filesystem::create_directory(root_ / "to");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  int Copy() {
    UniqueFd from(::open((root_ / "from").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    UniqueFd to(::open((root_ / "to").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return CopyTree(from.get(), to.get(), kKeepOwner);
  }
  std::filesystem::path root_;
};

TEST_F(PrivateCopyTest, CopiesFilesLinksAndEmptyDirectories) {
  const std::string large(100'000, 'x');
  std::ofstream(root_ / "from/d/large") << large;
  std::ofstream(root_ / "from/script") << "#!/bin/sh\n";
  ::chmod((root_ / "from/script").c_str(), 0755);
  std::filesystem::create_symlink("/etc/passwd", root_ / "from/link");
  for (int i = 0; i < 500; ++i) std::ofstream(root_ / "from/d" / ("file" + std::to_string(i))) << i;
  ASSERT_EQ(Copy(), 0);
  std::ifstream copied(root_ / "to/d/large");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(copied), {}), large);
  EXPECT_TRUE(std::filesystem::is_directory(root_ / "to/d/empty"));
  EXPECT_EQ(std::filesystem::read_symlink(root_ / "to/link"), "/etc/passwd");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_ / "to/d"), std::filesystem::directory_iterator()),
            502);
  EXPECT_EQ(::access((root_ / "to/script").c_str(), X_OK), 0);
}

TEST_F(PrivateCopyTest, LeavesPipesOutAndIsNotBlocked) {
  ASSERT_EQ(::mkfifo((root_ / "from/pipe").c_str(), 0600), 0);
  ASSERT_EQ(Copy(), 0);
  EXPECT_FALSE(std::filesystem::exists(root_ / "to/pipe"));
}

TEST_F(PrivateCopyTest, RefusesWhatIsNestedTooDeeply) {
  std::filesystem::path deep = root_ / "from";
  for (int i = 0; i < 70; ++i) deep /= "n";
  std::filesystem::create_directories(deep);
  EXPECT_EQ(Copy(), -1);
  EXPECT_EQ(errno, ELOOP);
}

}  // namespace
}  // namespace caisson::sandbox
