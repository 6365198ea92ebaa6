#include "policy/path_policy.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace caisson::policy {
namespace {

class PathPolicyTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-policy-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = std::filesystem::canonical(path);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::filesystem::path root_;
};

ErrorKind KindOf(const std::string& path) {
  const Result<JudgedPath> judged = OpenJudged(path);
  EXPECT_FALSE(judged) << path;
  return judged ? ErrorKind::kSystem : judged.error().kind;
}

TEST_F(PathPolicyTest, OpensWhatIsHarmless) {
  std::filesystem::create_directory(root_ / "project");
  const Result<JudgedPath> judged = OpenJudged(root_ / "project/../project/.");
  ASSERT_TRUE(judged) << judged.error().message;
  EXPECT_EQ(judged->canonical, (root_ / "project").string());
  EXPECT_TRUE(judged->is_directory);
}

TEST_F(PathPolicyTest, RefusesSensitivePlacesHoweverSpelt) {
  for (const char* path :
       {"/", "/etc", "/etc/passwd", "/proc", "/proc/self", "/sys", "/dev", "/dev/null", "/run", "//etc//",
        "/usr/../etc", "/proc/self/root", "/proc/self/cwd", "/dev/fd/0", "/var", "/var/run"}) {
    EXPECT_EQ(KindOf(path), ErrorKind::kDenied) << path;
  }
}

TEST_F(PathPolicyTest, RefusesAnotherProcessesRoot) {
  EXPECT_FALSE(OpenJudged("/proc/1/root/etc"));  // as a magic link, or as somebody else's
}

TEST_F(PathPolicyTest, JudgesTheTargetOfALink) {
  std::filesystem::create_symlink("/etc", root_ / "innocent");
  EXPECT_EQ(KindOf(root_ / "innocent"), ErrorKind::kDenied);
  std::filesystem::create_directory(root_ / "real");
  std::filesystem::create_symlink(root_ / "real", root_ / "link");
  const Result<JudgedPath> judged = OpenJudged(root_ / "link");
  ASSERT_TRUE(judged);
  EXPECT_EQ(judged->canonical, (root_ / "real").string());
}

TEST_F(PathPolicyTest, LookAlikesAreNotTheSensitivePlace) {
  std::filesystem::create_directory(root_ / "etc");
  EXPECT_TRUE(OpenJudged(root_ / "etc"));
}

TEST_F(PathPolicyTest, RefusesCredentialsAndTheirHome) {
  std::filesystem::create_directories(root_ / "home/.ssh");
  EXPECT_EQ(KindOf(root_ / "home"), ErrorKind::kDenied);
  EXPECT_EQ(KindOf(root_ / "home/.ssh"), ErrorKind::kDenied);
}

TEST_F(PathPolicyTest, RefusesWhatIsNeitherFileNorDirectory) {
  ASSERT_EQ(::mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(KindOf(root_ / "fifo"), ErrorKind::kDenied);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  const std::string path = root_ / "engine.sock";
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(KindOf(path), ErrorKind::kDenied);
  ::close(fd);
}

TEST_F(PathPolicyTest, NamesWhatIsNotThere) {
  EXPECT_EQ(KindOf(root_ / "missing"), ErrorKind::kInvalid);
  EXPECT_EQ(KindOf(""), ErrorKind::kInvalid);
  EXPECT_EQ(KindOf(std::string("/tmp\0/etc", 9)), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace caisson::policy
