#include "intake/intake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "verify/digest.h"

namespace caisson::intake {
namespace {

UniqueFd FileWith(const std::string& bytes) {
  UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return file;
}

std::string FaultOf(const Result<Archive>& archive) { return archive ? "taken" : archive.error().message; }

TEST(Archive, IsHashedWhereverTheDescriptorStands) {
  const UniqueFd file = FileWith("archive");  // its offset is at the end now
  const Result<Archive> archive = Archive::Take(file.get(), verify::Sha256Hex("archive"));
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_EQ(archive->bytes(), 7U);
  EXPECT_EQ(archive->sha256(), verify::Sha256Hex("archive"));
}

TEST(Archive, MustBeTheOneAskedFor) {
  EXPECT_EQ(FaultOf(Archive::Take(FileWith("archive").get(), verify::Sha256Hex("another"))),
            "the archive's SHA-256 is " + verify::Sha256Hex("archive") + ", not that of the request");
}

TEST(Archive, CannotBeChangedOnceTaken) {
  const UniqueFd file = FileWith("archive");
  const Result<Archive> archive = Archive::Take(file.get());
  ASSERT_TRUE(archive);
  ASSERT_EQ(::pwrite(file.get(), "A", 1, 0), 1);  // the original, as its owner may
  char first = 0;
  ASSERT_EQ(::pread(archive->fd(), &first, 1, 0), 1);
  EXPECT_EQ(first, 'a');
  EXPECT_EQ(::pwrite(archive->fd(), "A", 1, 0), -1);
  EXPECT_EQ(::ftruncate(archive->fd(), 1), -1);
  EXPECT_EQ(::ftruncate(archive->fd(), 100), -1);
}

TEST(Archive, IsAFileWithSomethingInIt) {
  EXPECT_EQ(FaultOf(Archive::Take(FileWith("").get())), "the archive is an empty file");
  const UniqueFd directory(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(FaultOf(Archive::Take(directory.get())), "the archive is not a regular file");
  const UniqueFd large(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(large.get(), static_cast<off_t>(kMaxArchiveBytes) + 1), 0);
  EXPECT_EQ(FaultOf(Archive::Take(large.get())), "the archive is larger than 64 MiB");
}

// This test's own program has no helper beside it.
TEST(Unpack, SaysThatTheHelperIsMissing) {
  const Result<Archive> archive = Archive::Take(FileWith("archive").get());
  ASSERT_TRUE(archive);
  const auto files = Unpack(*archive, ArchiveFormat::kAny, Limits{});
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(files.error().message.find("caisson-intake"), std::string::npos);
}

}  // namespace
}  // namespace caisson::intake
