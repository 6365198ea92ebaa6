#include "sandbox/tree_meter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace caisson::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kPageBytes = 4096;

// A directory that looks like /proc, so that tests can leave out what the kernel would refuse to show.
class TreeMeterTest : public ::testing::Test {
 protected:
  TreeMeterTest() {
    char name[] = "/tmp/caisson-test-proc-XXXXXX";
    proc_ = ::mkdtemp(name);
  }
  ~TreeMeterTest() override { fs::remove_all(proc_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((proc_ / path).parent_path());
    std::ofstream(proc_ / path) << text;
  }

  // Fields 20, 23 and 24 of proc(5): threads, mapped bytes, resident pages. The name of a process may hold anything.
  void AddProcess(int pid, int64_t mapped, int64_t resident, int64_t threads = 1, int parent = 1,
                  const char* state = "S") {
    std::string line = std::to_string(pid) + " (a) 9 9) " + state;
    for (int field = 4; field <= 52; ++field) {
      const int64_t value = field == 4    ? parent
                            : field == 20 ? threads
                            : field == 23 ? mapped
                            : field == 24 ? resident / kPageBytes
                                          : 0;
      line += " " + std::to_string(value);
    }
    Write(std::to_string(pid) + "/stat", line + "\n");
    fs::create_directories(proc_ / std::to_string(pid) / "fd");
  }

  void AddRollup(int pid, int64_t proportional, int64_t shared) {
    Write(std::to_string(pid) + "/smaps_rollup",
          "0-1 ---p 00000000 00:00 0 [rollup]\nRss: 1 kB\nPss:   " + std::to_string(proportional >> 10) +
              " kB\nPss_Dirty: 7 kB\nPss_Shmem: " + std::to_string(shared >> 10) + " kB\n");
  }

  TreeMeter Make() {
    TreeMeter::Views views;
    views.proc = UniqueFd(::open(proc_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return TreeMeter(std::move(views));
  }

  MemoryMeasure Measure(int64_t limit, int64_t scratch = 0) {
    TreeMeter meter = Make();
    return meter.Memory(meter.Measure(), scratch, limit);
  }

  fs::path proc_;
};

TEST_F(TreeMeterTest, SharedPagesCountOnce) {
  for (const int pid : {2, 3}) {
    AddProcess(pid, 100 * kMiB, 60 * kMiB);
    AddRollup(pid, 30 * kMiB, 30 * kMiB);
  }
  EXPECT_EQ(Measure(64 * kMiB).bytes, 60 * kMiB);
}

TEST_F(TreeMeterTest, WhatMayNotBeReadCountsWithAllThatIsResident) {
  AddProcess(2, 100 * kMiB, 80 * kMiB);
  EXPECT_EQ(Measure(64 * kMiB).bytes, 80 * kMiB);
  // Empty, as the kernel shows it for a process that is about to end: here too, resident pages count.
  Write("2/smaps_rollup", "");
  EXPECT_EQ(Measure(64 * kMiB).bytes, 80 * kMiB);
}

// An ended first thread shows no memory, and the process lives on in the other threads.
TEST_F(TreeMeterTest, AProcessWithoutItsFirstThreadCounts) {
  AddProcess(2, 0, 0, 2);
  AddProcess(3, 100 * kMiB, 80 * kMiB, 2);
  fs::create_directories(proc_ / "2/task");
  fs::rename(proc_ / "3", proc_ / "2/task/3");
  fs::copy(proc_ / "2", proc_ / "first", fs::copy_options::recursive);
  fs::rename(proc_ / "first", proc_ / "2/task/2");
  EXPECT_EQ(Measure(64 * kMiB).bytes, 80 * kMiB);
  AddRollup(2, 0, 0);
  fs::rename(proc_ / "2/smaps_rollup", proc_ / "2/task/3/smaps_rollup");
  EXPECT_EQ(Measure(64 * kMiB).bytes, 0);
}

TEST_F(TreeMeterTest, AChildOfVforkCountsWithItsParent) {
  AddProcess(2, 100 * kMiB, 60 * kMiB, 1, 1, "D");
  fs::create_directories(proc_ / "2/task");
  fs::copy(proc_ / "2", proc_ / "copy", fs::copy_options::recursive);
  fs::rename(proc_ / "copy", proc_ / "2/task/2");
  for (const int child : {3, 4}) AddProcess(child, 100 * kMiB, 60 * kMiB, 1, 2);
  for (const int pid : {2, 3, 4}) AddRollup(pid, 60 * kMiB, 0);
  // Only one of the two similar children is a borrower, because only one thread waits.
  EXPECT_EQ(Measure(100 * kMiB).bytes, 120 * kMiB);
  fs::remove_all(proc_ / "4");
  EXPECT_EQ(Measure(100 * kMiB).bytes, 60 * kMiB);
  // Without a waiting thread the child is a copy and counts.
  AddProcess(2, 100 * kMiB, 60 * kMiB);
  fs::copy_file(proc_ / "2/stat", proc_ / "2/task/2/stat", fs::copy_options::overwrite_existing);
  EXPECT_EQ(Measure(100 * kMiB).bytes, 120 * kMiB);
}

TEST_F(TreeMeterTest, PageTablesCount) {
  AddProcess(2, int64_t{1} << 37, kMiB);
  Write("2/status", "Name:\tVmPTE:\nVmPTE:\t  131072 kB\n");
  const MemoryMeasure measure = Measure(1024 * kMiB);
  EXPECT_EQ(measure.table_bytes, 128 * kMiB);
  EXPECT_EQ(measure.bytes, 129 * kMiB);
}

TEST_F(TreeMeterTest, OpenMemoryFilesCountOnce) {
  const UniqueFd file(::memfd_create("held", MFD_CLOEXEC));
  ASSERT_EQ(::fallocate(file.get(), 0, 0, 8 * kMiB), 0);
  for (const int pid : {2, 3}) {
    AddProcess(pid, kMiB, 0);
    fs::create_symlink("/proc/self/fd/" + std::to_string(file.get()), proc_ / std::to_string(pid) / "fd/5");
  }
  const MemoryMeasure measure = Measure(64 * kMiB);
  EXPECT_EQ(measure.file_bytes, 8 * kMiB);
  EXPECT_EQ(measure.bytes, 8 * kMiB);
}

// A mapped file of scratch is in both accounts.
TEST_F(TreeMeterTest, MappedFilesOfScratchCountOnce) {
  AddProcess(2, 100 * kMiB, 50 * kMiB);
  AddRollup(2, 50 * kMiB, 40 * kMiB);
  Write("2/smaps",
        "00400000-00500000 rw-s 00000000 00:00 7  /dev/shm/a\nSize: 40960 kB\nPss:  40960 kB\n"
        "7f0000000000-7f0000a00000 rw-p 00000000 00:05 0\nSize: 10240 kB\nPss:  10240 kB\n");
  EXPECT_EQ(Measure(64 * kMiB, 40 * kMiB).bytes, 50 * kMiB);
}

TEST_F(TreeMeterTest, ProcessesThatStayClosedAreUnmeasured) {
  AddProcess(2, kMiB, 0);
  fs::remove(proc_ / "2/fd");
  Write("2/fd", "no directory");
  TreeMeter meter = Make();
  EXPECT_EQ(meter.Memory(meter.Measure(), 0, kMiB).unmeasured, 0);
  int64_t unmeasured = 0;
  for (int turn = 0; turn < 1000 && unmeasured == 0; ++turn) {
    ::usleep(5'000);
    unmeasured = meter.Memory(meter.Measure(), 0, kMiB).unmeasured;
  }
  EXPECT_EQ(unmeasured, 1);
  fs::remove_all(proc_ / "2");  // it has ended
  for (int turn = 0; turn < 1000 && unmeasured != 0; ++turn) {
    ::usleep(5'000);
    unmeasured = meter.Memory(meter.Measure(), 0, kMiB).unmeasured;
  }
  EXPECT_EQ(unmeasured, 0);
}

}  // namespace
}  // namespace caisson::sandbox
