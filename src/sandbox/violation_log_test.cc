#include "sandbox/violation_log.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace caisson::sandbox {
namespace {

Violation Of(ViolationClass violation_class, const std::string& reason) {
  Violation violation;
  violation.violation_class = violation_class;
  violation.reason = reason;
  return violation;
}

int64_t Attempts(const std::vector<Violation>& list) {
  return std::accumulate(list.begin(), list.end(), int64_t{0},
                         [](int64_t sum, const Violation& one) { return sum + one.count; });
}

TEST(ViolationLog, ManyOfOneKindHideNoOther) {
  ViolationLog log;
  for (int i = 0; i < 1000; ++i) log.Add(Of(ViolationClass::kFilesystemWrite, "fs.write"), false);
  EXPECT_TRUE(log.Add(Of(ViolationClass::kNetworkAccess, "net.connect"), false));
  EXPECT_TRUE(log.Add(Of(ViolationClass::kSyscall, "syscall.ptrace"), false));
  const std::vector<Violation> list = log.Take();
  ASSERT_EQ(list.size(), ViolationLog::kListedPerKind + 2);
  EXPECT_EQ(list[0].count, static_cast<int64_t>(1000 - ViolationLog::kListedPerKind + 1));
  EXPECT_EQ(list[list.size() - 2].reason, "net.connect");
  EXPECT_EQ(list.back().reason, "syscall.ptrace");
  EXPECT_EQ(Attempts(list), 1002);
}

TEST(ViolationLog, OneClassWithTwoReasonsIsTwoKinds) {
  ViolationLog log;
  for (int i = 0; i < 100; ++i) log.Add(Of(ViolationClass::kSyscall, "syscall.fs"), false);
  EXPECT_TRUE(log.Add(Of(ViolationClass::kSyscall, "syscall.mount"), false));
}

TEST(ViolationLog, WhatEndedTheCommandIsListedBehindAnyNumberOfItsKind) {
  ViolationLog log;
  for (int i = 0; i < 100; ++i) log.Add(Of(ViolationClass::kSyscall, "syscall.kernel"), false);
  Violation last = Of(ViolationClass::kSyscall, "syscall.kernel");
  last.time_ms = 77;
  EXPECT_TRUE(log.Add(std::move(last), true));
  const std::vector<Violation> list = log.Take();
  EXPECT_EQ(list.back().time_ms, 77);
  EXPECT_EQ(Attempts(list), 101);
}

TEST(ViolationLog, ManyReasonsAreBoundedAndCounted) {
  ViolationLog log;
  for (int i = 0; i < 10'000; ++i) log.Add(Of(ViolationClass::kSyscall, "reason." + std::to_string(i)), false);
  EXPECT_TRUE(log.Add(Of(ViolationClass::kTimeout, "late"), false)) << "the first of a class is always listed";
  const std::vector<Violation> list = log.Take();
  EXPECT_EQ(list.size(), ViolationLog::kMaxKinds + 1);
  EXPECT_EQ(Attempts(list), 10'001);
}

TEST(ViolationLog, KnowsItsClasses) {
  ViolationLog log;
  EXPECT_FALSE(log.Has(ViolationClass::kTimeout));
  log.Add(Of(ViolationClass::kTimeout, "cpu_time_ms"), false);
  EXPECT_TRUE(log.Has(ViolationClass::kTimeout));
  EXPECT_FALSE(log.Has(ViolationClass::kMemoryLimit));
}

}  // namespace
}  // namespace caisson::sandbox
