#include "sandbox/probes.h"

#include <gtest/gtest.h>

#include "sandbox/seccomp_program.h"

namespace caisson::sandbox {
namespace {

const std::vector<Probe> kProbes = {{"syscall.numa", "", "numeric libraries ask"},
                                    {"", "/var/cache/fontconfig", "fontconfig offers"}};

Violation Refused(const std::string& reason) {
  Violation violation;
  violation.violation_class = ViolationClass::kSyscall;
  violation.reason = reason;
  violation.evidence = {{"syscall", "mbind"}, {"arguments", "0x0"}, {"answer", "EPERM"}};
  return violation;
}

Violation Written(const std::string& path, const std::string& call = "openat") {
  Violation violation;
  violation.violation_class = ViolationClass::kFilesystemWrite;
  violation.reason = "fs.write";
  violation.confidence = Confidence::kObserved;
  violation.evidence = {{"syscall", call}, {"path", path}};
  return violation;
}

TEST(Probes, AreWhatTheTableLists) {
  EXPECT_EQ(FindProbe(kProbes, Refused("syscall.numa")), &kProbes[0]);
  EXPECT_EQ(FindProbe(kProbes, Written("/var/cache/fontconfig")), &kProbes[1]);
  EXPECT_EQ(FindProbe(kProbes, Written("/var/cache/fontconfig/a/b", "mkdir")), &kProbes[1]);
}

TEST(Probes, AreNothingElse) {
  EXPECT_EQ(FindProbe({}, Refused("syscall.numa")), nullptr);
  EXPECT_EQ(FindProbe(kProbes, Refused("syscall.kernel")), nullptr);
  EXPECT_EQ(FindProbe(kProbes, Refused("")), nullptr);
  for (const char* path : {"/var/cache", "/var/cache/fontconfig-2", "/usr/bin/ls", "", "/", "var/cache/fontconfig",
                           "/var/cache/fontconfig/../x", "/var/cache/fontconfig//x", "/var/cache/fontconfig/."})
    EXPECT_EQ(FindProbe(kProbes, Written(path)), nullptr) << path;
  // Two paths: the evidence has only the first that is refused.
  for (const char* call : {"rename", "renameat2", "linkat", "unlink", "chmod", "bind", "unknown", ""})
    EXPECT_EQ(FindProbe(kProbes, Written("/var/cache/fontconfig/a", call)), nullptr) << call;
}

TEST(Probes, NeverCoverOtherClassesOrCallsThatEndTheSandbox) {
  for (const ViolationClass other :
       {ViolationClass::kTimeout, ViolationClass::kMemoryLimit, ViolationClass::kNetworkAccess,
        ViolationClass::kOutputLimit, ViolationClass::kProcessLimit}) {
    Violation violation = Refused("syscall.numa");
    violation.violation_class = other;
    EXPECT_EQ(FindProbe(kProbes, violation), nullptr);
    violation = Written("/var/cache/fontconfig");
    violation.violation_class = other;
    EXPECT_EQ(FindProbe(kProbes, violation), nullptr);
  }
  Violation killed = Refused("syscall.numa");
  killed.evidence.back().second = "killed";
  EXPECT_EQ(FindProbe(kProbes, killed), nullptr);
  Violation read_from_memory = Refused("syscall.numa");
  read_from_memory.confidence = Confidence::kObserved;
  EXPECT_EQ(FindProbe(kProbes, read_from_memory), nullptr);
  Violation full = Written("/var/cache/fontconfig/a");
  full.reason = "scratch_limit";
  EXPECT_EQ(FindProbe(kProbes, full), nullptr);
  Violation nothing_read = Written("/var/cache/fontconfig/a");
  nothing_read.evidence.clear();
  EXPECT_EQ(FindProbe(kProbes, nothing_read), nullptr);
  Violation two = Written("/var/cache/fontconfig/a");
  two.evidence.emplace_back("path", "/usr/bin/ls");
  EXPECT_EQ(FindProbe(kProbes, two), nullptr);
}

TEST(Probes, AreOneNoticeForEachEntryHoweverMany) {
  std::vector<Notice> notices;
  for (int i = 0; i < 1000; ++i) {
    Violation violation = Written("/var/cache/fontconfig/" + std::to_string(i));
    violation.time_ms = i;
    AddNotice(notices, kProbes[1], violation);
    AddNotice(notices, kProbes[0], Refused("syscall.numa"));
  }
  ASSERT_EQ(notices.size(), 2U);
  EXPECT_EQ(notices[0].probe, "/var/cache/fontconfig");
  EXPECT_EQ(notices[0].why, "fontconfig offers");
  EXPECT_EQ(notices[0].count, 1000);
  EXPECT_EQ(notices[0].time_ms, 0);
  EXPECT_EQ(std::get<std::string>(notices[0].evidence[1].second), "/var/cache/fontconfig/0");
  EXPECT_EQ(notices[1].count, 1000);
}

// A reason that a profile may list denies its calls, and only in a form that registers can distinguish.
TEST(Probes, HaveRulesThatMatchByRegistersAlone) {
  for (const char* filter : {"balanced", "balanced-watched", "session", "session-watched", "strict"}) {
    for (const std::string reason : {"syscall.numa", "syscall.fanotify"}) {
      int rules = 0;
      for (const NotifyRule& rule : FindSeccompProgram(filter)->rules) {
        if (rule.reason != reason) continue;
        ++rules;
        EXPECT_EQ(rule.disposition, Disposition::kDeny);
        EXPECT_EQ(rule.violation_class, ViolationClass::kSyscall);
        EXPECT_GT(rule.test_count, 0) << filter << " " << reason;
      }
      EXPECT_GT(rules, 0) << filter << " " << reason;
    }
  }
}

}  // namespace
}  // namespace caisson::sandbox
