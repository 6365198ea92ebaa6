#include "audit/audit_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/corpus.h"

namespace caisson::audit {
namespace {

using testing::Slurp;

Entry CancelEntry(const std::string& reason) {
  Entry entry;
  entry.actor = {"uid:1000", verify::Role::kOperator};
  entry.request_id = "req-1";
  entry.details = Cancel{reason};
  return entry;
}

class AuditLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/caisson-audit-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    path_ = directory_ + "/audit.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Appends that many; returns the head after each.
  std::vector<Head> Fill(int count, const std::string& reason = "reason ") {
    std::vector<Head> heads;
    const Result<AuditLog> log = AuditLog::Open(path_);
    EXPECT_TRUE(log) << log.error().message;
    for (int i = 0; i < count; ++i) {
      const Result<Head> head = log->Append(CancelEntry(reason + std::to_string(i)));
      EXPECT_TRUE(head) << head.error().message;
      heads.push_back(*head);
    }
    return heads;
  }

  std::vector<std::string> Lines() const {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  void Write(const std::vector<std::string>& lines) const {
    std::ofstream file(path_, std::ios::trunc);
    for (const std::string& line : lines) file << line << '\n';
  }

  // "intact 3", or "edited 2": the fault and its line.
  std::string Judge(const std::optional<Head>& expected = std::nullopt) const {
    const Result<Verification> verification = Verify(path_, expected);
    if (!verification) return verification.error().message;
    if (!verification->finding) return "intact " + std::to_string(verification->records);
    EXPECT_FALSE(verification->finding->message.empty());
    return std::string(ChainFaultName(verification->finding->fault)) + " " +
           std::to_string(verification->finding->line);
  }

  std::string FaultOfAppending() const {
    const Result<AuditLog> log = AuditLog::Open(path_);
    if (!log) return log.error().message;
    const Result<Head> head = log->Append(CancelEntry("x"));
    return head ? "appended" : head.error().message;
  }

  std::string directory_;
  std::string path_;
};

TEST_F(AuditLogTest, AppendsAChain) {
  EXPECT_EQ(Fill(3).back().seq, 2);
  EXPECT_EQ(Judge(), "intact 3");
  EXPECT_EQ(Fill(2).front().seq, 3);  // a second log object continues where the first stopped
  EXPECT_EQ(Judge(), "intact 5");
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AuditLogTest, AnEmptyLogIsIntact) {
  Fill(0);
  EXPECT_EQ(Judge(), "intact 0");
  EXPECT_EQ(Judge(Head{0, std::string(64, 'a')}), "truncated 1");
}

TEST_F(AuditLogTest, FindsAnEdit) {
  Fill(5);
  const auto lines = Lines();
  for (size_t i = 0; i < lines.size(); ++i) {
    auto edited = lines;
    const size_t at = edited[i].find("reason ");
    edited[i][at + 7] = 'X';
    Write(edited);
    EXPECT_EQ(Judge(), "edited " + std::to_string(i + 1));
  }
  auto spaced = lines;
  spaced[2].insert(1, " ");
  Write(spaced);
  EXPECT_EQ(Judge(), "malformed 3");
}

TEST_F(AuditLogTest, FindsAnyChangedByte) {
  Fill(3);
  const std::string text = Slurp(path_);
  for (size_t i = 0; i < text.size(); i += 3) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::ofstream(path_, std::ios::trunc) << changed;
    const Result<Verification> verification = Verify(path_, std::nullopt);
    ASSERT_TRUE(verification);
    EXPECT_TRUE(verification->finding) << "byte " << i;
  }
}

TEST_F(AuditLogTest, FindsARecordWrittenAnew) {
  Fill(4);
  auto lines = Lines();
  Record record = *ParseAuditRecord(lines[1]);
  record.entry.details = Cancel{"another"};
  record.hash = HashOf(record);
  lines[1] = Canonical(record);
  Write(lines);
  EXPECT_EQ(Judge(), "replaced 3");
}

TEST_F(AuditLogTest, FindsRemovals) {
  Fill(5);
  const auto lines = Lines();
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    auto rest = lines;
    rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
    Write(rest);
    EXPECT_EQ(Judge(), "missing " + std::to_string(i + 1));
  }
  Write({lines[0], lines[4]});
  EXPECT_EQ(Judge(), "missing 2");
}

TEST_F(AuditLogTest, FindsMovesAndRepeats) {
  Fill(5);
  const auto lines = Lines();
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    auto moved = lines;
    std::swap(moved[i], moved[i + 1]);
    Write(moved);
    EXPECT_EQ(Judge(), "reordered " + std::to_string(i + 1));
  }
  Write({lines[0], lines[1], lines[1], lines[2]});
  EXPECT_EQ(Judge(), "reordered 3");
}

TEST_F(AuditLogTest, FindsACutEndOnlyWithAHead) {
  const auto heads = Fill(5);
  const auto lines = Lines();
  EXPECT_EQ(Judge(heads[4]), "intact 5");
  EXPECT_EQ(Judge(heads[2]), "intact 5");  // the log has grown since
  Write({lines[0], lines[1], lines[2]});
  EXPECT_EQ(Judge(), "intact 3");
  EXPECT_EQ(Judge(heads[2]), "intact 3");
  EXPECT_EQ(Judge(heads[3]), "truncated 4");
  Write({});
  EXPECT_EQ(Judge(heads[0]), "truncated 1");
}

TEST_F(AuditLogTest, FindsALogWrittenAnewOnlyWithAHead) {
  const auto heads = Fill(3);
  Write({});
  Fill(4, "another ");
  EXPECT_EQ(Judge(), "intact 4");
  EXPECT_EQ(Judge(heads[2]), "replaced 3");
}

TEST_F(AuditLogTest, RefusesATornLineAndNamesTheFix) {
  Fill(2);
  const std::string whole = Slurp(path_);
  for (const size_t torn : {size_t{1}, size_t{100}}) {
    std::ofstream(path_, std::ios::trunc) << whole << whole.substr(0, torn);
    EXPECT_EQ(Judge(), "torn 3");
    const std::string fault = FaultOfAppending();
    EXPECT_NE(fault.find("truncate -s " + std::to_string(whole.size()) + " " + path_), std::string::npos) << fault;
    EXPECT_EQ(Slurp(path_).size(), whole.size() + torn);
  }
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(whole.size())), 0);
  EXPECT_EQ(FaultOfAppending(), "appended");
  EXPECT_EQ(Judge(), "intact 3");
}

TEST_F(AuditLogTest, RefusesToFollowWhatIsNotARecord) {
  for (const char* text : {"\n", "hello\n", "{}\n", "\n\n"}) {
    std::ofstream(path_, std::ios::trunc) << text;
    EXPECT_NE(FaultOfAppending().find("the last line is not an intact record"), std::string::npos) << text;
    EXPECT_EQ(Judge(), "malformed 1");
  }
  std::ofstream(path_, std::ios::trunc) << std::string(200'000, 'x');
  EXPECT_NE(FaultOfAppending().find("the last line is not an intact record"), std::string::npos);
  std::ofstream(path_, std::ios::trunc) << std::string(3'000'000, 'x') << '\n';
  EXPECT_NE(FaultOfAppending().find("the last line is not an intact record"), std::string::npos);
  EXPECT_EQ(Judge(), "malformed 1");
}

TEST_F(AuditLogTest, RefusesWhatItsOwnReaderWould) {
  Fill(1);
  const Result<AuditLog> log = AuditLog::Open(path_);
  ASSERT_TRUE(log);
  Entry entry = CancelEntry("two\nlines");
  EXPECT_FALSE(log->Append(entry));
  entry = CancelEntry("ok");
  entry.request_id = "";
  const Result<Head> head = log->Append(entry);
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().message, "audit record: request_id: required field is missing");
  EXPECT_EQ(Judge(), "intact 1");
}

TEST_F(AuditLogTest, OnlyRegularFiles) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(FaultOfAppending().find("not a regular file"), std::string::npos);
  EXPECT_NE(Judge().find("not a regular file"), std::string::npos);
  path_ = directory_;
  EXPECT_NE(FaultOfAppending(), "appended");
  path_ = directory_ + "/none/audit.jsonl";
  EXPECT_NE(FaultOfAppending().find("No such file or directory"), std::string::npos);
}

TEST_F(AuditLogTest, ProcessesAndThreadsShareALog) {
  constexpr int kProcesses = 4, kThreads = 2, kRecords = 10;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const Result<AuditLog> log = AuditLog::Open(path_);
      std::atomic<bool> good = log.has_value();
      const auto append = [&] {
        for (int n = 0; n < kRecords && good; ++n) {
          if (!log->Append(CancelEntry("x"))) good = false;
        }
      };
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) threads.emplace_back(append);
      for (std::thread& thread : threads) thread.join();
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Judge(), "intact " + std::to_string(kProcesses * kThreads * kRecords));
}

// Runs `body` in a child process, whose limits and namespaces end with it; the returned value is the child's exit code.
int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST_F(AuditLogTest, AFailedWriteLeavesNothing) {
  Fill(2);
  const std::string before = Slurp(path_);
  // A file size limit gives what a full disk gives: first a short write, then an error.
  EXPECT_EQ(InChild([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const struct rlimit limit { before.size() + 20, before.size() + 20 };
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
              const Result<AuditLog> log = AuditLog::Open(path_);
              if (!log) return 11;
              const Result<Head> head = log->Append(CancelEntry("x"));
              return !head && head.error().kind == ErrorKind::kSystem && head.error().errno_value == EFBIG ? 0 : 12;
            }),
            0);
  EXPECT_EQ(Slurp(path_), before);
  EXPECT_EQ(FaultOfAppending(), "appended");
  EXPECT_EQ(Judge(), "intact 3");
}

TEST_F(AuditLogTest, AFullDiskLeavesNothing) {
  constexpr int kCannot = 77;
  const int exit_code = InChild([&] {
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return kCannot;
    // A user without a mapping cannot own a file.
    if (user != 0) {
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
      std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    }
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("none", directory_.c_str(), "tmpfs", 0, "size=16k") != 0) return kCannot;
    const Result<AuditLog> log = AuditLog::Open(path_);
    if (!log) return 10;
    int appended = 0;
    for (;;) {
      const std::string before = Slurp(path_);
      const Result<Head> head = log->Append(CancelEntry(std::string(500, 'x')));
      if (head) {
        ++appended;
        continue;
      }
      if (head.error().errno_value != ENOSPC) return 11;
      if (Slurp(path_) != before) return 12;
      return appended > 5 && Judge() == "intact " + std::to_string(appended) ? 0 : 13;
    }
  });
  if (exit_code == kCannot) GTEST_SKIP() << "needs root or user namespaces";
  EXPECT_EQ(exit_code, 0);
}

TEST(Head, HasATextForm) {
  const std::string hash(64, 'a');
  const Result<Head> head = ParseHead("12:" + hash);
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->seq, 12);
  EXPECT_EQ(FormatHead(*head), "12:" + hash);
  for (const std::string& bad :
       std::vector<std::string>{"", "12", "12:", "-1:" + hash, ":" + hash, "1x:" + hash, "1:" + hash + "a",
                                "1:" + std::string(64, 'A'), "99999999999999999999:" + hash}) {
    EXPECT_FALSE(ParseHead(bad)) << bad;
  }
}

}  // namespace
}  // namespace caisson::audit
