#include "service/blobs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace caisson::service {
namespace {

using Names = std::vector<std::string>;

std::string ReadAll(const UniqueFd& file) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(file.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

class BlobsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/caisson-blobs-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    parent_ = directory;
    directory_ = parent_ + "/blobs";
    blobs_ = Open(0);
  }
  void TearDown() override { std::filesystem::remove_all(parent_); }

  std::unique_ptr<Blobs> Open(int64_t quota) const {
    Result<std::unique_ptr<Blobs>> blobs = Blobs::Open(directory_, quota);
    EXPECT_TRUE(blobs) << blobs.error().message;
    return *std::move(blobs);
  }
  std::string Put(const std::string& bytes) {
    const Result<std::string> name = blobs_->Put(bytes);
    EXPECT_TRUE(name) << name.error().message;
    return *name;
  }
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name.substr(0, 2) + "/" + name; }
  void MakeOld(const std::string& path) const {
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  size_t Incoming() const {
    const std::filesystem::directory_iterator files(directory_ + "/incoming");
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }
  int64_t Collect(const Names& used) {
    const Result<int64_t> removed = blobs_->Collect(60'000, [&](const Names& asked) -> Result<Names> {
      asked_.insert(asked.begin(), asked.end());
      return used;
    });
    EXPECT_TRUE(removed) << removed.error().message;
    return *removed;
  }

  std::string parent_;
  std::string directory_;
  std::unique_ptr<Blobs> blobs_;
  std::set<std::string> asked_;
};

TEST_F(BlobsTest, AreNamedByWhatIsInThem) {
  const std::string name = Put("hello");
  EXPECT_EQ(name, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  int64_t bytes = 0;
  const Result<UniqueFd> file = blobs_->Get(name, &bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(ReadAll(*file), "hello");
  EXPECT_EQ(bytes, 5);
  struct stat status {};
  ASSERT_EQ(::stat(PathOf(name).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0400U);
  ASSERT_EQ(::stat(directory_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  EXPECT_EQ(Put(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_F(BlobsTest, NamesThatAreNoneAreRefused) {
  const std::string name = Put("x");
  std::string upper = name;
  upper[0] = 'A';
  for (const std::string& bad : {std::string(), std::string("../../etc/passwd"), name + "0", name.substr(1), upper,
                                 std::string(64, '/'), std::string(64, '\0')}) {
    ASSERT_FALSE(blobs_->Get(bad));
    EXPECT_EQ(blobs_->Get(bad).error().kind, ErrorKind::kInvalid) << bad;
    EXPECT_EQ(blobs_->Keep(bad).error().kind, ErrorKind::kInvalid) << bad;
  }
  EXPECT_EQ(blobs_->Get(std::string(64, '0')).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(blobs_->Keep(std::string(64, '0')).error().kind, ErrorKind::kNotFound);
}

TEST_F(BlobsTest, ThereIsOneOfEach) {
  const std::string name = Put("same");
  struct stat first {};
  ASSERT_EQ(::stat(PathOf(name).c_str(), &first), 0);
  Put("same");
  const Result<std::unique_ptr<Blobs::Upload>> upload = blobs_->Begin(100);
  ASSERT_TRUE(upload);
  ASSERT_TRUE((*upload)->Add("sa"));
  ASSERT_TRUE((*upload)->Add("me"));
  const Result<std::string> again = (*upload)->Finish();
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, name);
  struct stat second {};
  ASSERT_EQ(::stat(PathOf(name).c_str(), &second), 0);
  EXPECT_EQ(second.st_ino, first.st_ino);
}

TEST_F(BlobsTest, AnUploadThatIsNotFinishedVanishes) {
  {
    const Result<std::unique_ptr<Blobs::Upload>> upload = blobs_->Begin(0);
    ASSERT_TRUE(upload);
    ASSERT_TRUE((*upload)->Add("half"));
    EXPECT_EQ(Incoming(), 1U);
    EXPECT_EQ(blobs_->bytes(), 4);
  }
  EXPECT_EQ(Incoming(), 0U);
  EXPECT_EQ(blobs_->bytes(), 0);
  Put("whole");
  EXPECT_EQ(Incoming(), 0U);
  EXPECT_EQ(blobs_->bytes(), 5);
}

TEST_F(BlobsTest, BoundsHoldWhileBytesCome) {
  blobs_ = Open(10);
  const Result<std::unique_ptr<Blobs::Upload>> small = blobs_->Begin(3);
  ASSERT_TRUE(small);
  EXPECT_TRUE((*small)->Add("123"));
  const Status more = (*small)->Add("4");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().kind, ErrorKind::kInvalid);

  const Result<std::unique_ptr<Blobs::Upload>> large = blobs_->Begin(0);
  ASSERT_TRUE(large);
  EXPECT_TRUE((*large)->Add("1234567"));
  const Status full = (*large)->Add("8");
  ASSERT_FALSE(full) << "three and seven of ten are taken, though nothing is finished";
  EXPECT_EQ(full.error().kind, ErrorKind::kExhausted);
  ASSERT_TRUE((*large)->Finish());

  const Result<std::string> refused = blobs_->Put("12345");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kExhausted);
  EXPECT_TRUE(blobs_->Put("1234567")) << "what is there costs nothing";
  EXPECT_EQ(Open(10)->bytes(), 7);
}

TEST_F(BlobsTest, CollectingTakesOldOnesThatNobodyUses) {
  const std::string used = Put("used");
  const std::string unused = Put("unused");
  const std::string young = Put("young");
  MakeOld(PathOf(used));
  MakeOld(PathOf(unused));
  std::ofstream(directory_ + "/incoming/left-over") << "of a crash";
  MakeOld(directory_ + "/incoming/left-over");
  const Result<std::unique_ptr<Blobs::Upload>> upload = blobs_->Begin(0);
  ASSERT_TRUE(upload);
  ASSERT_TRUE((*upload)->Add("coming"));

  EXPECT_EQ(Collect({used}), 1);
  EXPECT_EQ(asked_, (std::set<std::string>{used, unused})) << "a young one is not asked for";
  EXPECT_TRUE(blobs_->Get(used));
  EXPECT_TRUE(blobs_->Get(young));
  EXPECT_FALSE(blobs_->Get(unused));
  EXPECT_EQ(Incoming(), 1U) << "the left-over is gone, what comes is not";
  EXPECT_EQ(blobs_->bytes(), 4 + 5 + 6);
  EXPECT_TRUE((*upload)->Finish());
  EXPECT_EQ(Collect({}), 1);
  EXPECT_EQ(blobs_->bytes(), 5 + 6);
}

TEST_F(BlobsTest, WhatIsPutAgainOrKeptIsYoung) {
  const std::string put = Put("put again");
  const std::string kept = Put("kept");
  for (const std::string& name : {put, kept}) MakeOld(PathOf(name));
  const Result<int64_t> removed = blobs_->Collect(60'000, [&](const Names&) -> Result<Names> {
    // Runs between the query and the removal.
    Put("put again");
    EXPECT_TRUE(blobs_->Keep(kept));
    return Names{};
  });
  ASSERT_TRUE(removed);
  EXPECT_EQ(*removed, 0);
}

TEST_F(BlobsTest, WithoutAnAnswerNothingIsRemoved) {
  const std::string name = Put("x");
  MakeOld(PathOf(name));
  const Result<int64_t> removed = blobs_->Collect(
      0, [](const Names&) -> Result<Names> { return Error::System(EIO, "the database does not answer"); });
  EXPECT_FALSE(removed);
  EXPECT_TRUE(blobs_->Get(name));
}

// A caller that was told that a blob exists finds it, although another service removes old blobs meanwhile.
TEST_F(BlobsTest, PuttingAndCollectingAtOnce) {
  const std::unique_ptr<Blobs> other = Open(0);
  std::atomic<bool> done{false};
  std::atomic<int64_t> removed{0};
  std::thread collector([&] {
    while (!done) {
      const Result<int64_t> count = other->Collect(60'000, [](const Names&) -> Result<Names> { return Names{}; });
      EXPECT_TRUE(count) << count.error().message;
      removed += count ? *count : 0;
    }
  });
  std::vector<std::thread> writers;
  for (int thread = 0; thread < 4; ++thread) {
    writers.emplace_back([&, thread] {
      const std::string text = "blob of " + std::to_string(thread);
      // The next one is put while this one, which is old from here on, is found and removed, or not yet.
      for (int i = 0; i < 50 || removed < 4; ++i) {
        const std::string name = Put(text);
        const Result<UniqueFd> file = blobs_->Get(name);
        ASSERT_TRUE(file) << file.error().message;
        EXPECT_EQ(ReadAll(*file), text);
        MakeOld(PathOf(name));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  collector.join();
  EXPECT_EQ(Incoming(), 0U);
}

}  // namespace
}  // namespace caisson::service
