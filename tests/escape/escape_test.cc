// Tests of the suite itself: each canary must be able to fail, and a row that proves nothing must not pass.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "escape/canaries.h"
#include "escape/judge.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

namespace fs = std::filesystem;

constexpr int kShort = 50;  // ms to wait for leftovers

class CanariesTest : public testing::Test {
 protected:
  CanariesTest() {
    std::string name = (fs::temp_directory_path() / "caisson-canaries-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    std::ofstream(directory_ + "/program") << "program";
    canaries_.emplace(directory_, std::vector<std::string>{directory_ + "/program"});
    canaries_->Arm();
  }
  ~CanariesTest() override { fs::remove_all(directory_); }

  void ExpectFault(const std::string& text) {
    const std::vector<std::string> faults = canaries_->Check(kShort);
    ASSERT_EQ(faults.size(), 1U) << testing::PrintToString(faults);
    EXPECT_NE(faults[0].find(text), std::string::npos) << faults[0];
  }

  std::string directory_;
  std::optional<Canaries> canaries_;
};

TEST_F(CanariesTest, QuietWhenNothingHappened) { EXPECT_TRUE(canaries_->Check(kShort).empty()); }

TEST_F(CanariesTest, FileWritten) {
  std::ofstream(canaries_->file()) << canaries_->secret();  // even with the same bytes
  ExpectFault("mode, owner, time or identity");
}

TEST_F(CanariesTest, FileBytes) {
  struct stat before {};
  ::stat(canaries_->file().c_str(), &before);
  std::ofstream(canaries_->file()) << "other";
  const struct timespec times[2] = {before.st_atim, before.st_mtim};
  ::utimensat(AT_FDCWD, canaries_->file().c_str(), times, 0);
  ExpectFault("bytes changed");
}

TEST_F(CanariesTest, FileMode) {
  ::chmod(canaries_->file().c_str(), 0600);
  ExpectFault("mode");
}

TEST_F(CanariesTest, FileGone) {
  ::unlink(canaries_->file().c_str());
  ExpectFault("gone");
}

TEST_F(CanariesTest, FileRead) {
  if (!canaries_->reading_shows()) GTEST_SKIP() << "this file system does not note readings";
  EXPECT_EQ(ReadText(canaries_->file()), canaries_->secret());
  ExpectFault("was read");
}

TEST_F(CanariesTest, ProgramChanged) {
  std::ofstream(directory_ + "/program") << "Program";
  ExpectFault("/program changed");
}

TEST_F(CanariesTest, LoopbackReached) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(canaries_->port()));
  ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const std::vector<std::string> faults = canaries_->Check(kShort);
  EXPECT_NE(testing::PrintToString(faults).find("loopback"), std::string::npos);
}

TEST_F(CanariesTest, DatagramReachedLoopback) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(canaries_->port()));
  {
    const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::sendto(fd.get(), "x", 1, 0, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 1);
  }
  ExpectFault("loopback");
}

TEST_F(CanariesTest, AbstractSocketReached) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = canaries_->abstract_name();
  ::memcpy(address.sun_path + 1, name.data(), name.size());
  {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
  }
  ExpectFault("abstract");
}

TEST_F(CanariesTest, DescriptorLeaked) {
  const UniqueFd leaked(::dup(0));
  ExpectFault("open files");
}

TEST_F(CanariesTest, ProcessLeft) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ExpectFault("processes were left");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// A daemon: its parent is gone, its session is its own.
TEST_F(CanariesTest, DaemonLeft) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    if (const pid_t daemon = ::fork(); daemon == 0) {
      ::alarm(20);
      ::pause();
    }
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ExpectFault("processes were left");
  for (const pid_t pid : Host::Descendants(::getpid())) ::kill(pid, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST_F(CanariesTest, ProcessThatEndsSoonIsForgiven) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(100'000);
    ::_exit(0);
  }
  EXPECT_TRUE(canaries_->Check(5000).empty());
}

TEST_F(CanariesTest, SharedMemoryLeft) {
  const int id = ::shmget(IPC_PRIVATE, 4096, 0600);
  ASSERT_GE(id, 0);
  ExpectFault("System V object was left: shm " + std::to_string(id));
  ::shmctl(id, IPC_RMID, nullptr);
}

// Changes that need their own namespaces to be harmless run in a child, which reports its findings.
void InOwnNamespaces(const std::string& directory, const std::function<void()>& change, const std::string& expected) {
  const Ended ended = InChild(
      [&] {
        const std::string uid = std::to_string(::geteuid());
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS) != 0 ||
            !WriteText("/proc/self/uid_map", "0 " + uid + " 1")) {
          return 77;
        }
        Canaries canaries(directory, {});
        canaries.Arm();
        change();
        return testing::PrintToString(canaries.Check(kShort)).find(expected) != std::string::npos ? 0 : 1;
      },
      20);
  if (ended.code == 77) GTEST_SKIP() << "no user namespace can be had";
  EXPECT_TRUE(ended.exited && ended.code == 0);
}

TEST_F(CanariesTest, MountAdded) {
  InOwnNamespaces(
      directory_, [&] { ::mount("none", directory_.c_str(), "tmpfs", 0, nullptr); }, "mount table");
}

TEST_F(CanariesTest, HostRenamed) {
  InOwnNamespaces(
      directory_, [] { ASSERT_EQ(::sethostname("taken-over", 10), 0); }, "/proc/sys/kernel/hostname changed");
}

TEST_F(CanariesTest, GroupLeft) {
  const std::string top = "/sys/fs/cgroup/" + std::string(fs::exists("/sys/fs/cgroup/unified") ? "unified/" : "");
  const std::string group = top + "caisson-canary-" + std::to_string(::getpid());
  if (::mkdir(group.c_str(), 0755) != 0) GTEST_SKIP() << "no cgroup can be made here";
  ExpectFault("cgroup was left: " + group);
  ::rmdir(group.c_str());
}

Outcome Bare(const std::string& line) {
  Outcome outcome;
  outcome.process.out = line;
  outcome.process.exit_code = 0;
  return outcome;
}

TEST(ControlTest, MustEscape) {
  EXPECT_EQ(FaultInControl("X01", Bare("PROBE X01 ESCAPED errno=0 detail=yes\n")), std::nullopt);
  for (const char* line : {"PROBE X01 BLOCKED errno=1 detail=\n", "PROBE X01 NA errno=0 detail=no python\n",
                           "PROBE X01 PARTIAL errno=0 detail=\n", "PROBE X02 ESCAPED errno=0 detail=\n",
                           "noise PROBE X01 ESCAPED errno=0 detail=\n", ""}) {
    EXPECT_NE(FaultInControl("X01", Bare(line)), std::nullopt) << line;
  }
}

TEST(RowTest, VacuousRowIsSkipped) {
  RowOutcome nothing;
  JudgeRow(&nothing);
  EXPECT_EQ(nothing.verdict, Verdict::kSkip);
  RowOutcome skipped;
  skipped.attempts.push_back({.id = "X01", .reason = "without a sandbox it does not work either"});
  skipped.judgement = Vacuous("not here");
  JudgeRow(&skipped);
  EXPECT_EQ(skipped.verdict, Verdict::kSkip);
}

TEST(RowTest, OneFailureOrOneCanaryFailsTheRow) {
  RowOutcome row;
  row.attempts.push_back({.id = "X01/a", .verdict = Verdict::kPass});
  JudgeRow(&row);
  EXPECT_EQ(row.verdict, Verdict::kPass);
  row.canaries = {"the canary file was read"};
  JudgeRow(&row);
  EXPECT_EQ(row.verdict, Verdict::kFail);
  row.canaries.clear();
  row.judgement = Broken("broken");
  JudgeRow(&row);
  EXPECT_EQ(row.verdict, Verdict::kFail);
}

class AttemptTest : public testing::Test {
 protected:
  // A run inside that printed `line`, with these violations reported.
  static Outcome Inside(const std::string& line, std::vector<ReportedViolation> violations = {}) {
    Outcome outcome = Bare(line);
    outcome.result.emplace();
    outcome.result->status = violations.empty() ? "pass" : "fail";
    outcome.result->exit_code = 0;
    if (!violations.empty()) outcome.result->failure_class = violations[0].violation_class;
    outcome.result->violations = std::move(violations);
    return outcome;
  }
  static Verdict JudgedAs(const ParkedSetup& expect, const Outcome& run) {
    AttemptOutcome outcome;
    outcome.id = "X01";
    JudgeAttempt(expect, run, &outcome);
    return outcome.verdict;
  }

  const std::string blocked_ = "PROBE X01 BLOCKED errno=1 detail=\n";
  const ReportedViolation violation_ = {"SyscallViolation", "syscall.ptrace", "proven", {{"syscall", "ptrace"}}};
  const ParkedSetup denied_ = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.ptrace", "ptrace"}}};
};

TEST_F(AttemptTest, BlockedAsExpectedPasses) {
  EXPECT_EQ(JudgedAs({.errnos = {EPERM}}, Inside(blocked_)), Verdict::kPass);
  EXPECT_EQ(JudgedAs(denied_, Inside(blocked_, {violation_})), Verdict::kPass);
}

TEST_F(AttemptTest, AnythingElseFails) {
  for (const char* line : {"PROBE X01 ESCAPED errno=0 detail=\n", "PROBE X01 PARTIAL errno=0 detail=\n",
                           "PROBE X01 NA errno=0 detail=\n", "PROBE X01 BLOCKED errno=2 detail=\n", "noise\n", ""}) {
    EXPECT_EQ(JudgedAs({.errnos = {EPERM}}, Inside(line)), Verdict::kFail) << line;
  }
}

TEST_F(AttemptTest, MissingOrNeedlessReportFails) {
  EXPECT_EQ(JudgedAs(denied_, Inside(blocked_)), Verdict::kFail);
  EXPECT_EQ(JudgedAs({.errnos = {EPERM}}, Inside(blocked_, {violation_})), Verdict::kFail);
  ReportedViolation other = violation_;
  other.evidence["syscall"] = "kcmp";
  EXPECT_EQ(JudgedAs(denied_, Inside(blocked_, {other})), Verdict::kFail);
}

TEST_F(AttemptTest, FailureClassMustBeTheViolations) {
  Outcome hidden = Inside(blocked_, {violation_});
  hidden.result->failure_class.clear();
  EXPECT_EQ(JudgedAs(denied_, hidden), Verdict::kFail);
}

TEST_F(AttemptTest, DeathCountsOnlyWhereItIsExpected) {
  Outcome killed = Inside("", {violation_});
  killed.result->signal = SIGKILL;
  ParkedSetup expect = denied_;
  EXPECT_EQ(JudgedAs(expect, killed), Verdict::kFail);
  expect.death = Death::kRequired;
  EXPECT_EQ(JudgedAs(expect, killed), Verdict::kPass);
  EXPECT_EQ(JudgedAs(expect, Inside(blocked_, {violation_})), Verdict::kFail);
  killed.result->signal = SIGSEGV;  // a crash is not a refusal
  EXPECT_EQ(JudgedAs(expect, killed), Verdict::kFail);
}

TEST_F(AttemptTest, NoResultFails) {
  EXPECT_EQ(JudgedAs({}, Bare(blocked_)), Verdict::kFail);
  Outcome refused = Inside(blocked_);
  refused.result->status = "error";
  EXPECT_EQ(JudgedAs({}, refused), Verdict::kFail);
}

TEST(TallyTest, NoTryHidesBehindAnother) {
  Tally tally;
  tally.Add("a", -EPERM);
  EXPECT_EQ(tally.Sum().seen, Seen::kBlocked);
  tally.Add("b", 0);
  EXPECT_EQ(tally.Sum().seen, Seen::kPartial);
  EXPECT_EQ(tally.SumAny().seen, Seen::kEscaped);
  EXPECT_EQ(Tally().Sum().seen, Seen::kNotApplicable);
}

}  // namespace

}  // namespace caisson::escape
