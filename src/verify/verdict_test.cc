#include "verify/verdict.h"

#include <gtest/gtest.h>

namespace caisson::verify {
namespace {

using policy::OnViolation;

Violation Seen(ViolationClass violation_class, int64_t time_ms) {
  Violation violation;
  violation.violation_class = violation_class;
  violation.time_ms = time_ms;
  return violation;
}

TEST(Judge, CleanExitPasses) {
  const Verdict verdict = Judge({}, OnViolation::kFail);
  EXPECT_EQ(verdict.status, VerdictStatus::kPass);
  EXPECT_EQ(verdict.failure_class, "");
  EXPECT_EQ(verdict.terminal_event, "completed");
}

TEST(Judge, ExitCodesProveNothingButFailure) {
  for (const int exit_code : {1, 124, 137, 139, 159}) {
    CommandOutcome outcome;
    outcome.exit_code = exit_code;
    EXPECT_EQ(Judge(outcome, OnViolation::kFail).failure_class, "CheckFailed") << exit_code;
  }
  CommandOutcome own_signal;
  own_signal.ending = Ending::kSignaled;
  own_signal.signal = 31;
  EXPECT_EQ(Judge(own_signal, OnViolation::kFail).failure_class, "CheckFailed");
}

TEST(Judge, WhatEndedItNamesTheClass) {
  CommandOutcome outcome;
  outcome.ending = Ending::kTimeout;
  outcome.violations = {Seen(ViolationClass::kNetworkAccess, 1), Seen(ViolationClass::kTimeout, 100)};
  const Verdict verdict = Judge(outcome, OnViolation::kFail);
  EXPECT_EQ(verdict.failure_class, "TimeoutViolation");
  EXPECT_EQ(verdict.terminal_event, "timeout");
}

TEST(Judge, ElseTheFirstInTime) {
  CommandOutcome outcome;
  outcome.violations = {Seen(ViolationClass::kNetworkAccess, 50), Seen(ViolationClass::kFilesystemWrite, 7)};
  EXPECT_EQ(Judge(outcome, OnViolation::kFail).failure_class, "FilesystemWriteViolation");
}

TEST(Judge, ReportLetsTheExitCodeDecide) {
  CommandOutcome outcome;
  outcome.violations = {Seen(ViolationClass::kNetworkAccess, 1)};
  EXPECT_EQ(Judge(outcome, OnViolation::kReport).status, VerdictStatus::kPass);
  EXPECT_EQ(Judge(outcome, OnViolation::kFail).status, VerdictStatus::kFail);
}

TEST(Judge, ReportDoesNotBlameAPlainFailureOnAnEarlierViolation) {
  CommandOutcome outcome;
  outcome.violations = {Seen(ViolationClass::kNetworkAccess, 1)};
  outcome.exit_code = 1;
  EXPECT_EQ(Judge(outcome, OnViolation::kReport).failure_class, "CheckFailed");
  EXPECT_EQ(Judge(outcome, OnViolation::kReport).terminal_event, "check_failed");
  EXPECT_EQ(Judge(outcome, OnViolation::kFail).failure_class, "NetworkAccessViolation");
  outcome.ending = Ending::kSignaled;
  EXPECT_EQ(Judge(outcome, OnViolation::kReport).failure_class, "CheckFailed");
  // The cause of the ending determines the class in both cases.
  outcome.ending = Ending::kSyscall;
  for (const OnViolation mode : {OnViolation::kReport, OnViolation::kFail})
    EXPECT_EQ(Judge(outcome, mode).failure_class, "SyscallViolation");
}

TEST(Judge, EveryEndingHasItsEvent) {
  const std::pair<Ending, const char*> expected[] = {
      {Ending::kMemoryLimit, "memory_limit"},
      {Ending::kProcessLimit, "process_limit"},
      {Ending::kOutputLimit, "output_limit"},
      {Ending::kSyscall, "syscall_denied"},
      {Ending::kCancelled, "cancelled"},
      {Ending::kNotExecutable, "check_failed"},
      {Ending::kLost, "error"},
  };
  for (const auto& [ending, event] : expected) {
    CommandOutcome outcome;
    outcome.ending = ending;
    EXPECT_EQ(Judge(outcome, OnViolation::kFail).terminal_event, event);
  }
}

}  // namespace
}  // namespace caisson::verify
