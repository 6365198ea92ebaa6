#include "service/audit_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace caisson::service {
namespace {

class AuditWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-audit_writer-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/audit.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static store::Job SomeJob(int number) {
    store::Job job;
    job.id = "job-" + std::to_string(number);
    job.tenant = "t";
    job.request_id = "r-" + std::to_string(number);
    return job;
  }

  std::string directory_, path_;
};

TEST_F(AuditWriterTest, ThreadsShareOneIntactChain) {
  const std::unique_ptr<AuditWriter> audit_writer = *AuditWriter::Open(path_);
  constexpr int kThreads = 16, kEach = 20;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        if (!audit_writer->Record(SomeJob(thread * kEach + i), TheService(), audit::Cancel{"why"})) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  const Result<audit::Verification> verified = audit::Verify(path_, std::nullopt);
  ASSERT_TRUE(verified);
  EXPECT_FALSE(verified->finding);
  EXPECT_EQ(verified->records, kThreads * kEach);
}

TEST_F(AuditWriterTest, AnEntryThatIsNoneFailsAloneAndTheLogStaysUsable) {
  const std::unique_ptr<AuditWriter> audit_writer = *AuditWriter::Open(path_);
  EXPECT_FALSE(audit_writer->Record(SomeJob(1), TheService(), audit::Cancel{"two\nlines"}));
  EXPECT_TRUE(audit_writer->Usable());
  EXPECT_TRUE(audit_writer->Record(SomeJob(2), TheService(), audit::Cancel{"fine"}));
}

// A limit on file size stands for a disk that is full: the kernel refuses to let the file grow.
TEST_F(AuditWriterTest, AFullDiskStopsItUntilThereIsRoom) {
  const std::unique_ptr<AuditWriter> audit_writer = *AuditWriter::Open(path_);
  ASSERT_TRUE(audit_writer->Record(SomeJob(1), TheService(), audit::Cancel{"first"}));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{std::filesystem::file_size(path_) + 10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_FALSE(audit_writer->Record(SomeJob(2), TheService(), audit::Cancel{"second"}));
  EXPECT_FALSE(audit_writer->Usable());
  audit_writer->Probe();
  EXPECT_FALSE(audit_writer->Usable());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  audit_writer->Probe();
  EXPECT_TRUE(audit_writer->Usable());
  EXPECT_TRUE(audit_writer->Record(SomeJob(3), TheService(), audit::Cancel{"third"}));
  const Result<audit::Verification> verified = audit::Verify(path_, std::nullopt);
  EXPECT_FALSE(verified->finding);
  EXPECT_EQ(verified->records, 2);
}

}  // namespace
}  // namespace caisson::service
