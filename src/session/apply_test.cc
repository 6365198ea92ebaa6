#include "session/apply.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>

#include "support/session_project.h"

namespace caisson::session {
namespace {

using ApplyTest = SessionProject;

TEST_F(ApplyTest, AppliesEveryKindAndThenThereIsNoDifference) {
  Work();
  const Diff diff = MakeDiff();
  EXPECT_EQ(diff.Summary().deleted, 2) << DiffToText(diff);  // gone, d/deep/file
  const auto report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->applied);
  EXPECT_EQ(Snapshot(project()), Snapshot(copy()));
  EXPECT_TRUE(MakeDiff().changes.empty()) << DiffToText(MakeDiff());
}

TEST_F(ApplyTest, KilledBeforeAnyStepItIsAllOrNothing) {
  Work();
  const Diff diff = MakeDiff();
  const auto before = Snapshot(project()), after = Snapshot(copy());
  bool finished = false;
  int undone = 0;
  for (int last = 1; !finished; ++last) {
    ASSERT_LT(last, 1000);
    const pid_t child = ::fork();
    if (child == 0) {
      int steps = 0;
      options_.progress = [&](ApplyPhase, const std::string&) {
        if (++steps == last) ::raise(SIGKILL);
      };
      const auto report = DoApply(diff);
      ::_exit(report && report->applied ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    finished = WIFEXITED(status);
    ASSERT_TRUE(!finished || WEXITSTATUS(status) == 0);
    const auto recovered = RecoverApply(project_fd_.get(), journal_fd_.get());
    ASSERT_TRUE(recovered) << recovered.error().message;
    if (finished || recovered->outcome == RecoverReport::Outcome::kFinished) {
      EXPECT_EQ(Snapshot(project()), after) << last;
      break;
    }
    EXPECT_EQ(recovered->outcome, RecoverReport::Outcome::kUndone) << last;
    ASSERT_EQ(Snapshot(project()), before) << last;
    ++undone;
  }
  EXPECT_GT(undone, 20);
}

TEST_F(ApplyTest, AHostEditAfterTheBeginningIsAConflict) {
  Work();
  Write(project() / "edited", "the host's\n");
  const auto before = Snapshot(project());
  const auto report = DoApply(MakeDiff());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->applied);
  ASSERT_EQ(report->conflicts.size(), 1U);
  EXPECT_EQ(report->conflicts[0].path, "edited");
  EXPECT_EQ(Snapshot(project()), before);
}

TEST_F(ApplyTest, AHostEditBetweenJudgementAndSwapIsAConflict) {
  for (const bool keep_times : {false, true}) {
    Work();
    const Diff diff = MakeDiff();
    options_.progress = [&](ApplyPhase phase, const std::string& path) {
      if (phase != ApplyPhase::kSwap || path != "edited") return;
      struct stat info {};
      ::stat((project() / "edited").c_str(), &info);
      Write(project() / "edited", "ONE\ntwo\nthree\n");
      const struct timespec times[2] = {info.st_atim, info.st_mtim};
      if (keep_times) ::utimensat(AT_FDCWD, (project() / "edited").c_str(), times, 0);
    };
    const auto report = DoApply(diff);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_FALSE(report->applied);
    EXPECT_EQ(Read(project() / "edited"), "ONE\ntwo\nthree\n");
    EXPECT_EQ(Read(project() / "gone"), "gone\n");
    EXPECT_FALSE(fs::exists(project() / "added"));
    options_.progress = nullptr;
    Write(project() / "edited", "one\ntwo\nthree\n");
    Begin();
  }
}

TEST_F(ApplyTest, AParentReplacedByALinkIsNotFollowed) {
  Write(copy() / "d/other", "session\n");
  const Diff diff = MakeDiff();
  fs::create_directory(root_ / "outside");
  Write(root_ / "outside/other", "outside\n");
  options_.progress = [&](ApplyPhase phase, const std::string& path) {
    if (phase != ApplyPhase::kSwap || path != "d/other") return;
    fs::rename(project() / "d", project() / "moved");
    fs::create_directory_symlink(root_ / "outside", project() / "d");
  };
  const auto report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->applied);
  EXPECT_EQ(Read(root_ / "outside/other"), "outside\n");
  EXPECT_EQ(Read(project() / "moved/other"), "other\n");
}

TEST_F(ApplyTest, ADirectoryThatTheHostMadeTooIsAConflict) {
  Write(copy() / "both/session", "s");
  const Diff diff = MakeDiff();
  Write(project() / "both/host", "h");
  const auto report = DoApply(diff);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->applied);
  EXPECT_EQ(Read(project() / "both/host"), "h");
  EXPECT_FALSE(fs::exists(project() / "both/session"));
}

TEST_F(ApplyTest, AFileThatTheHostAddedToADeletedDirectorySurvives) {
  fs::remove_all(copy() / "d");
  const Diff diff = MakeDiff();
  Write(project() / "d/host", "h");
  for (int round = 0; round < 2; ++round) {  // unknown to the diff, then known
    const auto report = DoApply(round == 0 ? diff : MakeDiff());
    ASSERT_TRUE(report);
    EXPECT_FALSE(report->applied);
    EXPECT_EQ(Read(project() / "d/host"), "h");
    EXPECT_EQ(Read(project() / "d/deep/file"), "deep\n");
  }
}

TEST_F(ApplyTest, RefusedEntriesAreListedAndStay) {
  ASSERT_EQ(::mkfifo((copy() / "fifo").c_str(), 0600), 0);
  Write(copy() / "setuid", "x");
  ::chmod((copy() / "setuid").c_str(), 04755);
  Write(copy() / ".git/hooks/pre-commit", "#!/bin/sh\n");
  fs::create_symlink("/etc", copy() / "out");
  Write(copy() / "large", "");
  ASSERT_EQ(::truncate((copy() / "large").c_str(), int64_t{1} << 40), 0);
  Write(copy() / "fine", "fine");
  const auto report = DoApply(MakeDiff());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->applied);
  EXPECT_EQ(report->paths, std::vector<std::string>{"fine"});
  std::map<std::string, std::string> refused;
  for (const RefusedChange& change : report->refused)
    refused[change.path] = kRefusalNames[static_cast<size_t>(change.reason)];
  EXPECT_EQ(refused, (std::map<std::string, std::string>{{"fifo", "fifo"},
                                                         {"setuid", "set_id"},
                                                         {".git", "git"},
                                                         {".git/hooks", "git"},
                                                         {".git/hooks/pre-commit", "git"},
                                                         {"out", "link_leaves_tree"},
                                                         {"large", "too_large"}}));
}

TEST_F(ApplyTest, OnlyWhatWasSelectedAndLaterTheRest) {
  Work();
  options_.only = {"new/**/file"};
  auto report = DoApply(MakeDiff());
  ASSERT_TRUE(report);
  EXPECT_EQ(report->paths, (std::vector<std::string>{"new", "new/tree", "new/tree/file"}));
  Write(copy() / "new/tree/file", "again\n");  // written by Apply after the stamp, but not by the host
  options_.only.clear();
  report = DoApply(MakeDiff());
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->applied) << (report->conflicts.empty() ? "" : report->conflicts[0].path);
  EXPECT_EQ(Snapshot(project()), Snapshot(copy()));
}

TEST_F(ApplyTest, HostileNamesAreAppliedExactly) {
  for (const std::string& name : {std::string("a\nb"), std::string("\x1b[31m"), std::string("\xff\xfe"),
                                  std::string("-rf"), std::string("\xe2\x80\xae"), std::string(255, 'n')}) {
    Write(copy() / name, name);
  }
  const Diff diff = MakeDiff();
  for (const char c : DiffToText(diff)) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
  ASSERT_TRUE(DoApply(diff));
  EXPECT_EQ(Snapshot(project()), Snapshot(copy()));
}

TEST_F(ApplyTest, LimitsAreErrorsThatSaySo) {
  std::string deep = copy();
  for (int i = 0; i < 40; ++i) deep += "/x";
  fs::create_directories(deep);
  DiffLimits limits;
  limits.depth = 30;
  auto diff = ComputeDiff(project_fd_.get(), tree(), limits);
  ASSERT_FALSE(diff);
  EXPECT_EQ(diff.error().kind, ErrorKind::kExhausted);
  limits = {};
  limits.entries = 20;
  diff = ComputeDiff(project_fd_.get(), tree(), limits);
  ASSERT_FALSE(diff);
  EXPECT_EQ(diff.error().kind, ErrorKind::kExhausted);
}

TEST_F(ApplyTest, AChangedSessionFileIsNotApplied) {
  Work();
  const Diff diff = MakeDiff();
  Write(copy() / "added", "other\n");
  const auto before = Snapshot(project());
  EXPECT_FALSE(DoApply(diff));
  EXPECT_EQ(Snapshot(project()), before);
}

TEST_F(ApplyTest, GitTakesThePatch) {
  Work();
  Write(copy() / "edited", "one\n2\nthree\nfour");
  const auto patch = RenderPatch(project_fd_.get(), tree(), MakeDiff());
  ASSERT_TRUE(patch) << patch.error().message;
  std::ofstream(root_ / "patch") << *patch;
  const std::string command =
      "cd '" + project().string() + "' && GIT_CEILING_DIRECTORIES='" + root_.string() + "' git apply ../patch";
  ASSERT_EQ(std::system(command.c_str()), 0) << *patch;
  auto expected = Snapshot(copy());
  expected["readonly"] = Snapshot(project())["readonly"];  // a patch has no modes of directories
  EXPECT_EQ(Snapshot(project()), expected);
}

// The name of the staging directory in the project's root; empty if there is none.
std::string StagingIn(const fs::path& project) {
  for (const auto& entry : fs::directory_iterator(project)) {
    const std::string name = entry.path().filename();
    if (name.rfind(".caisson-apply-", 0) == 0) return name;
  }
  return "";
}

TEST_F(ApplyTest, AStagingDirectoryThatCannotBeRemovedIsOnlyNoted) {
  Work();
  const Diff diff = MakeDiff();
  const auto wanted = Snapshot(copy());
  std::string staging;
  options_.progress = [&](ApplyPhase phase, const std::string&) {
    if (phase != ApplyPhase::kCleanUp) return;
    staging = StagingIn(project());
    fs::rename(project() / staging, root_ / "moved");
    Write(project() / staging, "in the way");
  };
  const auto report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->applied);
  EXPECT_FALSE(report->paths.empty());
  ASSERT_TRUE(report->leftover);
  EXPECT_EQ(report->leftover->staging, staging);
  EXPECT_FALSE(report->leftover->reason.empty());
  options_.progress = nullptr;
  Write(copy() / "added", "again\n");
  const auto refused = DoApply(MakeDiff());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kConflict);
  EXPECT_FALSE(RecoverApply(project_fd_.get(), journal_fd_.get()));  // still in the way, and still no loss

  fs::remove(project() / staging);
  fs::rename(root_ / "moved", project() / staging);
  const auto recovered = RecoverApply(project_fd_.get(), journal_fd_.get());
  ASSERT_TRUE(recovered) << recovered.error().message;
  EXPECT_EQ(recovered->outcome, RecoverReport::Outcome::kFinished);
  EXPECT_EQ(Snapshot(project()), wanted);
  // What the first call wrote is known as its own.
  const auto later = DoApply(MakeDiff());
  ASSERT_TRUE(later) << later.error().message;
  EXPECT_TRUE(later->applied);
  EXPECT_FALSE(later->leftover);
  EXPECT_EQ(Read(project() / "added"), "again\n");
}

TEST_F(ApplyTest, AJournalThatCannotBeRemovedIsOnlyNoted) {
  Work();
  const fs::path journal = root_ / "journal/apply.journal";
  options_.progress = [&](ApplyPhase phase, const std::string&) {
    if (phase != ApplyPhase::kCleanUp) return;
    fs::rename(journal, root_ / "kept");
    fs::create_directory(journal);
  };
  const auto report = DoApply(MakeDiff());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->applied && report->leftover);
  EXPECT_EQ(Snapshot(project()), Snapshot(copy()));
  fs::remove(journal);
  fs::rename(root_ / "kept", journal);
  const auto recovered = RecoverApply(project_fd_.get(), journal_fd_.get());
  ASSERT_TRUE(recovered) << recovered.error().message;
  EXPECT_EQ(recovered->outcome, RecoverReport::Outcome::kFinished);
  EXPECT_EQ(Snapshot(project()), Snapshot(copy()));
}

TEST_F(ApplyTest, WithoutTheListOfWritesNothingIsApplied) {
  Work();
  const Diff diff = MakeDiff();
  const auto before = Snapshot(project());
  const fs::path obstacle = root_ / "journal/applied.new";
  options_.progress = [&](ApplyPhase phase, const std::string&) {
    if (phase == ApplyPhase::kCommit) fs::create_directory(obstacle);
  };
  EXPECT_FALSE(DoApply(diff));
  options_.progress = nullptr;
  fs::remove(obstacle);
  const auto recovered = RecoverApply(project_fd_.get(), journal_fd_.get());
  ASSERT_TRUE(recovered) << recovered.error().message;
  EXPECT_EQ(recovered->outcome, RecoverReport::Outcome::kUndone);
  EXPECT_EQ(Snapshot(project()), before);
  const auto again = DoApply(diff);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->applied);
}

TEST_F(ApplyTest, OverwriteChangedAppliesOverTheHostsEdits) {
  Write(copy() / "edited", "session\n");
  fs::remove(copy() / "gone");
  Write(project() / "edited", "host\n");
  Write(project() / "gone", "host\n");
  const Diff diff = MakeDiff();
  auto report = DoApply(diff);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->applied);
  EXPECT_EQ(report->conflicts.size(), 2U);
  options_.overwrite_changed = true;
  report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->applied);
  EXPECT_EQ(Snapshot(project()), Snapshot(copy()));
}

TEST_F(ApplyTest, OverwriteChangedDoesNotReachBeyondTheDiff) {
  Write(copy() / "edited", "session\n");
  const Diff diff = MakeDiff();
  Write(project() / "edited", "the host's, and longer\n");  // the person who approved the diff has not seen it
  options_.overwrite_changed = true;
  const auto report = DoApply(diff);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->applied);
  EXPECT_EQ(Read(project() / "edited"), "the host's, and longer\n");
}

TEST_F(ApplyTest, AnUndoneOverwriteDoesNotHideTheHostsEdit) {
  Write(copy() / "edited", "session\n");
  Write(copy() / "zzz", "last\n");
  Write(project() / "edited", "host\n");
  const Diff diff = MakeDiff();
  options_.overwrite_changed = true;
  options_.progress = [&](ApplyPhase phase, const std::string& path) {
    if (phase == ApplyPhase::kSwap && path == "zzz") Write(project() / "zzz", "host\n");
  };
  auto report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->applied);
  options_.overwrite_changed = false;
  options_.progress = nullptr;
  fs::remove(project() / "zzz");
  report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->applied);
  ASSERT_EQ(report->conflicts.size(), 1U);
  EXPECT_EQ(report->conflicts[0].path, "edited");
  EXPECT_EQ(Read(project() / "edited"), "host\n");
}

// A link that an apply put into the project must not carry a later write out of it.
TEST_F(ApplyTest, NothingIsWrittenThroughAPlantedLink) {
  Write(root_ / "outside/passwd", "root\n");
  fs::create_directory_symlink(root_ / "outside", copy() / "out");
  options_.allow_leaving_links = true;
  auto report = DoApply(MakeDiff());
  ASSERT_TRUE(report && report->applied);
  ASSERT_TRUE(fs::is_symlink(project() / "out"));

  // A diff that claims a change below the link.
  Write(root_ / "forged/out/passwd", "evil\n");
  UniqueFd forged_fd(::open((root_ / "forged").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Manifest none;
  fs::create_directories(root_ / "empty");
  UniqueFd empty(::open((root_ / "empty").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto forged = ComputeDiff(empty.get(), {forged_fd.get(), &none});
  ASSERT_TRUE(forged);
  ASSERT_EQ(forged->changes.size(), 2U);
  forged->changes.erase(forged->changes.begin());  // leaves out/passwd alone
  report = Apply(project_fd_.get(), {forged_fd.get(), &none}, *forged, options_);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->applied);
  EXPECT_EQ(Read(root_ / "outside/passwd"), "root\n");

  // The session makes the link a directory: the link goes, its target stays.
  fs::remove(copy() / "out");
  Write(copy() / "out/passwd", "evil\n");
  report = DoApply(MakeDiff());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->applied) << (report->conflicts.empty() ? "" : report->conflicts[0].reason);
  EXPECT_FALSE(fs::is_symlink(project() / "out"));
  EXPECT_EQ(Read(project() / "out/passwd"), "evil\n");
  EXPECT_EQ(Read(root_ / "outside/passwd"), "root\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "outside"), fs::directory_iterator()), 1);
}

bool ChangesFiles(uint64_t call) {
  return call == SYS_renameat2 || call == SYS_renameat || call == SYS_unlinkat || call == SYS_fchmodat ||
         call == SYS_fsync || call == SYS_syncfs
#ifdef SYS_chmod
         || call == SYS_chmod
#endif
      ;
}

// Runs `body` in a child and kills it before its `last`-th system call that changes files. True if it was killed.
bool KilledBeforeCall(int last, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    body();
    ::_exit(0);
  }
  int status = 0, calls = 0;
  ::waitpid(child, &status, 0);
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    if (::waitpid(child, &status, 0) != child || WIFEXITED(status) || WIFSIGNALED(status)) return WIFSIGNALED(status);
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info{};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY && ChangesFiles(info.entry.nr) && ++calls == last) ::kill(child, SIGKILL);
  }
}

TEST_F(ApplyTest, ARecoveryThatIsKilledCanBeRepeated) {
  Work();
  const Diff diff = MakeDiff();
  const auto before = Snapshot(project());
  int killed = 0;
  for (int last = 1;; ++last) {
    ASSERT_LT(last, 1000);
    const pid_t child = ::fork();
    if (child == 0) {
      options_.progress = [&](ApplyPhase phase, const std::string&) {
        if (phase == ApplyPhase::kCommit) ::raise(SIGKILL);  // every swap is done, none is committed
      };
      (void)DoApply(diff);
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_NE(Snapshot(project()), before);
    const bool was_killed = KilledBeforeCall(last, [&] { (void)RecoverApply(project_fd_.get(), journal_fd_.get()); });
    const auto recovered = RecoverApply(project_fd_.get(), journal_fd_.get());
    ASSERT_TRUE(recovered) << last << ": " << recovered.error().message;
    ASSERT_EQ(Snapshot(project()), before) << last;
    ASSERT_EQ(recovered->outcome, was_killed ? RecoverReport::Outcome::kUndone : RecoverReport::Outcome::kNothing)
        << last;
    if (!was_killed) break;
    ++killed;
  }
  EXPECT_GT(killed, 20);
}

TEST_F(ApplyTest, ARealOverlayGivesTheSameTree) {
  // On a tmpfs: the tests may run on an overlay, which cannot be an upper layer.
  const int code = InNamespace([&] {
    const fs::path base = root_ / "mount";
    fs::create_directory(base);
    if (::mount("tmpfs", base.c_str(), "tmpfs", 0, "size=64m") != 0) return 77;
    fs::copy(project(), base / "lower", fs::copy_options::recursive);
    for (const char* name : {"upper", "work", "merged", "journal"}) fs::create_directory(base / name);
    UniqueFd lower(::open((base / "lower").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto made = TakeStamp(lower.get());
    auto stamp = made;
    while (stamp && stamp->ctime_ns == made->ctime_ns) stamp = TakeStamp(lower.get());  // the clock's next tick
    const std::string layers = "lowerdir=" + (base / "lower").string() + ",upperdir=" + (base / "upper").string() +
                               ",workdir=" + (base / "work").string() + ",userxattr";
    if (!stamp || ::mount("overlay", (base / "merged").c_str(), "overlay", 0, layers.c_str()) != 0) return 77;
    const fs::path merged = base / "merged";
    Write(merged / "edited", "one\n2\n");
    { std::ofstream(merged / "kept", std::ios::app); }  // copied up, same bytes
    ::chmod((merged / "kept").c_str(), 0600);
    fs::remove(merged / "gone");
    fs::rename(merged / "d/other", merged / "d/renamed");
    fs::remove_all(merged / "d/deep");
    fs::create_directory(merged / "d/deep");  // opaque: hides d/deep/file
    Write(merged / "d/deep/fresh", "f");
    Write(merged / "n/m/o", "o");
    ::setxattr((merged / "n").c_str(), "user.overlay.opaque", "y", 1, 0);  // forged; the kernel escapes or refuses it
    const auto wanted = Snapshot(merged);
    UniqueFd upper(::open((base / "upper").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    UniqueFd journal(::open((base / "journal").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const SessionTree session{upper.get(), nullptr};
    const auto diff = ComputeDiff(lower.get(), session);
    if (!diff) return (std::fprintf(stderr, "%s\n", diff.error().message.c_str()), 1);
    ApplyOptions options;
    options.stamp = *stamp;
    options.journal_fd = journal.get();
    const auto report = Apply(lower.get(), session, *diff, options);
    if (!report) return (std::fprintf(stderr, "%s\n", report.error().message.c_str()), 2);
    for (const auto& conflict : report->conflicts)
      std::fprintf(stderr, "%s: %s\n", conflict.path.c_str(), conflict.reason.c_str());
    if (!report->applied || Snapshot(base / "lower") != wanted)
      return (std::fprintf(stderr, "%s", DiffToText(*diff).c_str()), 3);
    const auto rest = ComputeDiff(lower.get(), session);
    return rest && rest->changes.empty() ? 0 : 4;
  });
  if (code == 77 && !MustRun("overlay")) GTEST_SKIP() << "SKIP: no overlay can be mounted in a namespace here";
  EXPECT_EQ(code, 0);
}

TEST_F(ApplyTest, AFullDiskLeavesTheProjectAsItWas) {
  Write(copy() / "big", std::string(4 << 20, 'x'));
  Write(copy() / "edited", "other\n");
  const int code = InNamespace([&] {
    const fs::path base = root_ / "mount";
    fs::create_directory(base);
    if (::mount("tmpfs", base.c_str(), "tmpfs", 0, "size=1m") != 0) return 77;
    fs::copy(project(), base / "project", fs::copy_options::recursive);
    UniqueFd small(::open((base / "project").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto before = Snapshot(base / "project");
    const auto diff = ComputeDiff(small.get(), tree());
    options_.stamp.ctime_ns = INT64_MAX;
    const auto report = Apply(small.get(), tree(), *diff, options_);
    if (report || report.error().errno_value != ENOSPC) return 1;
    return Snapshot(base / "project") == before ? 0 : 2;
  });
  if (code == 77 && !MustRun("overlay")) GTEST_SKIP() << "SKIP: no file system can be mounted in a namespace here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace caisson::session
