#include "runtime/microvm/initramfs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace caisson::runtime::microvm {
namespace {

// The fields of the entry that begins at `at`, and where the next one begins.
struct Entry {
  std::string name, bytes;
  unsigned long mode = 0, major = 0, minor = 0;
  size_t next = 0;
};

Entry Read(const std::string& archive, size_t at) {
  EXPECT_EQ(archive.substr(at, 6), "070701");
  EXPECT_EQ(at % 4, 0U);
  const auto field = [&](size_t index) {
    return std::strtoul(archive.substr(at + 6 + index * 8, 8).c_str(), nullptr, 16);
  };
  const auto aligned = [](size_t position) { return (position + 3) / 4 * 4; };
  Entry entry;
  entry.mode = field(1);
  entry.major = field(9);
  entry.minor = field(10);
  const size_t name_size = field(11), size = field(6);
  entry.name = archive.substr(at + 110, name_size - 1);
  EXPECT_EQ(archive[at + 110 + name_size - 1], '\0');
  const size_t begin = aligned(at + 110 + name_size);
  entry.bytes = archive.substr(begin, size);
  entry.next = aligned(begin + size);
  return entry;
}

TEST(Initramfs, HoldsWhatWasAdded) {
  InitramfsWriter writer;
  writer.AddDirectory("dev");
  writer.AddCharacterDevice("dev/console", 0600, 5, 1);
  writer.AddFile("init", 0755, "program");
  writer.AddFile("empty", 0644, "");
  const std::string archive = writer.Finish();
  const Entry directory = Read(archive, 0);
  EXPECT_EQ(directory.name, "dev");
  EXPECT_EQ(directory.mode, 040755U);
  const Entry device = Read(archive, directory.next);
  EXPECT_EQ(device.name, "dev/console");
  EXPECT_EQ(device.mode, 020600U);
  EXPECT_EQ(device.major, 5U);
  EXPECT_EQ(device.minor, 1U);
  const Entry program = Read(archive, device.next);
  EXPECT_EQ(program.name, "init");
  EXPECT_EQ(program.mode, 0100755U);
  EXPECT_EQ(program.bytes, "program");
  const Entry empty = Read(archive, program.next);
  EXPECT_EQ(empty.name, "empty");
  EXPECT_EQ(empty.bytes, "");
  const Entry trailer = Read(archive, empty.next);
  EXPECT_EQ(trailer.name, "TRAILER!!!");
  EXPECT_EQ(trailer.next, archive.size());
}

}  // namespace
}  // namespace caisson::runtime::microvm
