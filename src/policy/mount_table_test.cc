#include "policy/mount_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/unique_fd.h"

namespace caisson::policy {
namespace {

using Names = std::vector<std::string>;

class MountTableTest : public testing::Test {
 protected:
  MountTableTest() : fd_(::open("/", O_PATH | O_CLOEXEC)) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd_.get()));
    for (std::string word; info >> word;) {
      if (word == "mnt_id:") info >> id_;
    }
  }
  // The names of `canonical` when it lies on the mount that "@" stands for in `mountinfo`.
  Names NamesOf(std::string mountinfo, const std::string& canonical) {
    mountinfo.replace(mountinfo.find('@'), 1, std::to_string(id_));
    return MountTable::Parse(mountinfo).NamesOf(fd_.get(), canonical);
  }
  UniqueFd fd_;
  int id_ = -1;
};

TEST_F(MountTableTest, WhatIsMountedOnceHasOneName) {
  EXPECT_EQ(NamesOf("@ 1 8:1 / / rw - ext4 /dev/a rw\n", "/srv/x"), (Names{"/srv/x"}));
  EXPECT_EQ(NamesOf("@ 1 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /srv rw - ext4 /dev/b rw\n", "/srv/x"),
            (Names{"/srv/x"}));
}

TEST_F(MountTableTest, ABindMountIsThePlaceItShows) {
  const char kTable[] = "1 0 8:1 / / rw - ext4 /dev/a rw\n@ 1 8:1 /etc /srv/innocent rw - ext4 /dev/a rw\n";
  EXPECT_EQ(NamesOf(kTable, "/srv/innocent"), (Names{"/srv/innocent", "/etc"}));
  EXPECT_EQ(NamesOf(kTable, "/srv/innocent/ssh/key"), (Names{"/srv/innocent/ssh/key", "/etc/ssh/key"}));
  EXPECT_EQ(NamesOf(kTable, "/srv/innocent2"), (Names{"/srv/innocent2"}));  // cannot happen, and adds no name
}

TEST_F(MountTableTest, ThePlaceHasTheNamesOfItsBindMounts) {
  const char kTable[] =
      "@ 0 8:1 / / rw - ext4 /dev/a rw\n5 1 8:1 /home/u/data /mnt/data rw - ext4 /dev/a rw\n"
      "6 1 8:1 /home/u/data/in /mnt/in rw - ext4 /dev/a rw\n";
  EXPECT_EQ(NamesOf(kTable, "/home/u/data/in/x"), (Names{"/home/u/data/in/x", "/mnt/data/in/x", "/mnt/in/x"}));
  EXPECT_EQ(NamesOf(kTable, "/home/u/data"), (Names{"/home/u/data", "/mnt/data"}));
  EXPECT_EQ(NamesOf(kTable, "/home/u"), (Names{"/home/u"}));
}

TEST_F(MountTableTest, NestedBindMounts) {
  // /etc at /a, and /a/ssl at /a/b: the kernel has resolved the chain already.
  const char kTable[] =
      "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /etc /a rw - ext4 /dev/a rw\n@ 2 8:1 /etc/ssl /a/b rw - ext4 /dev/a "
      "rw\n";
  EXPECT_EQ(NamesOf(kTable, "/a/b/x"), (Names{"/a/b/x", "/etc/ssl/x", "/a/ssl/x"}));
}

TEST_F(MountTableTest, AnotherRootOfTheSameDeviceIsAnotherPlace) {
  // Subvolumes: one device, roots beside each other.
  const char kTable[] = "1 0 0:30 /@root / rw - btrfs /dev/a rw\n@ 1 0:30 /@home /home rw - btrfs /dev/a rw\n";
  EXPECT_EQ(NamesOf(kTable, "/home/u"), (Names{"/home/u"}));
  const char kLookAlike[] = "1 0 0:30 /@ / rw - btrfs /dev/a rw\n@ 1 0:30 /@home /home rw - btrfs /dev/a rw\n";
  EXPECT_EQ(NamesOf(kLookAlike, "/home/u"), (Names{"/home/u"}));
}

TEST_F(MountTableTest, UndoesTheKernelsEscapes) {
  const char kTable[] =
      "1 0 8:1 / / rw - ext4 /dev/a rw\n"
      "@ 1 8:1 /with\\040blank\\011tab /srv/new\\012line\\134 rw - ext4 /dev/a rw\n";
  EXPECT_EQ(NamesOf(kTable, "/srv/new\nline\\/x"), (Names{"/srv/new\nline\\/x", "/with blank\ttab/x"}));
  EXPECT_EQ(NamesOf("@ 1 8:1 /a /srv/\\04x\\9 rw\n2 1 8:1 /a /b\\04 rw\n", "/srv/\\04x\\9"),
            (Names{"/srv/\\04x\\9", "/b\\04"}));
}

TEST_F(MountTableTest, FindsWhatIsMountedBelow) {
  const MountTable table = MountTable::Parse(
      "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /etc /srv/a rw - ext4 /dev/a rw\n"
      "3 1 0:5 / /srv/ab rw - tmpfs t rw\n4 1 0:6 net:[4026531840] /srv/ns rw - nsfs n rw\n");
  using Below = std::vector<Names>;
  EXPECT_EQ(table.NamesBelow("/srv"), (Below{{"/srv/a", "/etc"}, {"/srv/ab"}, {"/srv/ns"}}));
  EXPECT_EQ(table.NamesBelow("/srv/a"), Below{});
  EXPECT_EQ(table.NamesBelow("/sr"), Below{});
  EXPECT_EQ(table.NamesBelow("/").size(), 3u);
}

TEST_F(MountTableTest, PassesOverWhatIsNoMount) {
  for (const char* text : {"", "\n\n", "x 1 8:1 / / rw\n", "7\n", "7 1 8:1\n", "7 1 8:1 /\n", "7 1 8:1 / relative rw\n",
                           "99999999999999999999 1 8:1 / / rw\n"})
    EXPECT_TRUE(MountTable::Parse(text).NamesBelow("/").empty()) << text;
}

TEST_F(MountTableTest, AMountWithoutNumberIsFoundByName) {
  const MountTable table = MountTable::Parse(
      "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /var /srv rw - ext4 /dev/a rw\n3 1 8:1 /etc /srv rw - ext4 /dev/a "
      "rw\n");
  EXPECT_EQ(table.NamesOf(-1, "/srv/x"), (Names{"/srv/x", "/etc/x"}));
  EXPECT_EQ(table.NamesOf(-1, "/etc/x"), (Names{"/etc/x", "/srv/x"}));
  EXPECT_EQ(MountTable::Parse("").NamesOf(fd_.get(), "/srv"), (Names{"/srv"}));
  EXPECT_EQ(MountTable::Parse("").NamesOf(-1, "/srv"), (Names{"/srv"}));
}

TEST_F(MountTableTest, ReadsTheMachinesOwn) {
  const Result<MountTable> table = MountTable::Read();
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->NamesOf(fd_.get(), "/").front(), "/");
  EXPECT_FALSE(table->NamesBelow("/").empty());  // /proc at least, or it could not have been read
}

}  // namespace
}  // namespace caisson::policy
