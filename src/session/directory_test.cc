// Directories of sessions: names, locks, removal, copies and the meter of what they take.
#include "session/directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "linux/files.h"
#include "session/layer_meter.h"
#include "session/tree_copy.h"

namespace caisson::session {
namespace {

class Directories : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-test-session-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    fd_ = *linux_sys::Open(root_, O_RDONLY | O_DIRECTORY);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  Record Recorded(const SessionDirectory& directory, const std::string& name, State state) {
    Record record;
    record.id = directory.id();
    record.name = name;
    record.state = state;
    record.created_at = "2030-01-01T00:00:00.000Z";
    EXPECT_TRUE(directory.WriteRecord(record));
    return record;
  }
  std::string root_;
  UniqueFd fd_;
};

TEST_F(Directories, AKilledSupervisorIsLost) {
  const auto directory = SessionDirectory::Create(root_);
  ASSERT_TRUE(directory) << directory.error().message;
  Recorded(*directory, "one", State::kRunning);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = directory->LockAsSupervisor();
    // Listing looks at the own directory too, which must not give up the lock.
    const bool fine = lock && ListSessions(root_) && directory->HasSupervisor();
    if (::write(ends[1], fine ? "y" : "n", 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char said = 0;
  ASSERT_EQ(::read(ends[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  EXPECT_TRUE(directory->HasSupervisor());
  EXPECT_FALSE(directory->LockAsSupervisor());
  EXPECT_EQ(ReadSettledRecord(*directory)->state, State::kRunning);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(ReadSettledRecord(*directory)->state, State::kLost);
  EXPECT_EQ(directory->ReadRecord()->state, State::kLost);
}

TEST_F(Directories, FindsByIdNameAndBeginning) {
  const auto one = SessionDirectory::Create(root_), other = SessionDirectory::Create(root_);
  ASSERT_TRUE(one && other);
  Recorded(*one, "web", State::kStopped);
  Recorded(*other, "web-2", State::kStopped);
  EXPECT_EQ(FindSession(root_, "web")->record.id, one->id());
  EXPECT_EQ(FindSession(root_, other->id())->record.name, "web-2");
  EXPECT_EQ(FindSession(root_, other->id().substr(4, 12))->record.name, "web-2");
  EXPECT_EQ(FindSession(root_, "nothing").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(FindSession(root_, "ses_").error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(FindSession(root_, "../x").error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(IsSessionName("ses_x") || IsSessionName("A") || IsSessionName("") || IsSessionName("-a") ||
               IsSessionName("a/b"));
  EXPECT_EQ(*ChooseName(root_, "", "/home/My Project!"), "myproject");
}

TEST_F(Directories, RemovesDeepAndLockedTreesAndFollowsNoLink) {
  const std::string outside = root_ + "/outside";
  std::filesystem::create_directory(outside);
  std::ofstream(outside + "/kept") << "x";
  ASSERT_EQ(::mkdirat(fd_.get(), "tree", 0755), 0);
  UniqueFd level = *linux_sys::OpenAt(fd_.get(), "tree", O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::symlinkat(outside.c_str(), level.get(), "way"), 0);
  for (int depth = 0; depth < 1500; ++depth) {
    ASSERT_EQ(::mkdirat(level.get(), "d", 0755), 0);
    level = *linux_sys::OpenAt(level.get(), "d", O_RDONLY | O_DIRECTORY);
  }
  ASSERT_EQ(::mkdirat(level.get(), "locked", 0), 0);
  const Status removed = RemoveTree(fd_.get(), "tree");
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_FALSE(std::filesystem::exists(root_ + "/tree"));
  EXPECT_TRUE(std::filesystem::exists(outside + "/kept"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_), std::filesystem::directory_iterator()), 1);
  EXPECT_TRUE(RemoveTree(fd_.get(), "tree"));
}

TEST_F(Directories, CopiesTreesAsTheyAre) {
  std::filesystem::create_directories(root_ + "/from/sub");
  std::filesystem::create_directory(root_ + "/to");
  std::ofstream(root_ + "/from/sub/file") << "text";
  std::filesystem::permissions(root_ + "/from/sub/file", std::filesystem::perms(0750));
  std::filesystem::create_symlink("/etc/passwd", root_ + "/from/link");
  ASSERT_EQ(::mkfifo((root_ + "/from/fifo").c_str(), 0600), 0);
  {
    const UniqueFd sparse = *linux_sys::Open(root_ + "/from/sparse", O_WRONLY | O_CREAT);
    ASSERT_EQ(::ftruncate(sparse.get(), int64_t{1} << 32), 0);
    ASSERT_EQ(::pwrite(sparse.get(), "end", 3, (int64_t{1} << 32) - 3), 3);
  }
  const UniqueFd from = *linux_sys::Open(root_ + "/from", O_RDONLY | O_DIRECTORY);
  const UniqueFd to = *linux_sys::Open(root_ + "/to", O_RDONLY | O_DIRECTORY);
  const Status copied = CopyTree(from.get(), to.get(), {});
  ASSERT_TRUE(copied) << copied.error().message;
  struct stat info {};
  ASSERT_EQ(::stat((root_ + "/to/sub/file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0750U);
  EXPECT_EQ(std::filesystem::read_symlink(root_ + "/to/link"), "/etc/passwd");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/to/fifo"));
  ASSERT_EQ(::stat((root_ + "/to/sparse").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, int64_t{1} << 32);
  EXPECT_LT(info.st_blocks, 1024);
  CopyLimits small;
  small.most_entries = 2;
  std::filesystem::create_directory(root_ + "/again");
  const UniqueFd again = *linux_sys::Open(root_ + "/again", O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(CopyTree(from.get(), again.get(), small).error().kind, ErrorKind::kExhausted);
}

TEST_F(Directories, MeterFindsTooMuch) {
  const auto walk = [&](LayerLimits limits) {
    LayerMeter meter(*linux_sys::Open(root_, O_RDONLY | O_DIRECTORY), limits);
    std::string fault;
    int64_t now = 1;
    do {
      fault = meter.Step(now);
      now = meter.next_ms();
    } while (fault.empty() && meter.bytes() == 0 && now < 1'000'000);
    return std::pair{fault, meter.bytes()};
  };
  for (int i = 0; i < 100; ++i) {
    const std::string directory = root_ + "/d" + std::to_string(i);
    std::filesystem::create_directory(directory);
    for (int k = 0; k < 100; ++k) std::ofstream(directory + "/" + std::to_string(k)) << std::string(4096, 'x');
  }
  const auto first = walk({int64_t{1} << 30, 1'000'000});
  const std::string fault = first.first;
  const int64_t bytes = first.second;
  EXPECT_EQ(fault, "");
  EXPECT_GE(bytes, 10'000 * 4096);
  EXPECT_NE(walk({int64_t{10} << 20, 1'000'000}).first, "");
  EXPECT_NE(walk({int64_t{1} << 30, 5000}).first, "");
  // A mode that keeps the owner out hides nothing, and stays.
  std::filesystem::permissions(root_ + "/d1", std::filesystem::perms::none);
  EXPECT_EQ(walk({int64_t{1} << 30, 1'000'000}), (std::pair{std::string(), bytes}));
  EXPECT_EQ(std::filesystem::status(root_ + "/d1").permissions(), std::filesystem::perms::none);
  std::filesystem::permissions(root_ + "/d1", std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace caisson::session
