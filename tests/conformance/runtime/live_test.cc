// Runs that stay: commands side by side, processes that outlive them, files while it lives, a workspace that is kept.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "conformance/runtime/runtime_fixture.h"

namespace caisson::runtime {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  char chunk[4096];
  for (ssize_t size; (size = ::read(fd, chunk, sizeof(chunk))) > 0;) text.append(chunk, static_cast<size_t>(size));
  return text;
}

// A live run with what was seen of it until now.
class Live {
 public:
  explicit Live(std::unique_ptr<LiveRun> run) : run_(std::move(run)) {}

  LiveRun& run() { return *run_; }
  const std::vector<Violation>& violations() const { return violations_; }
  const std::string& ended() const { return ended_; }

  uint32_t Begin(const Command& command, const LiveCommandOptions& options = {}) {
    Result<LiveCommand> started = run_->Begin(command, options);
    EXPECT_TRUE(started) << started.error().message;
    if (!started) return 0;
    const uint32_t id = started->id;
    commands_[id] = *std::move(started);
    return id;
  }
  LiveCommand& command(uint32_t id) { return commands_[id]; }

  void Turn() {
    struct pollfd wait {
      run_->descriptor(), POLLIN, 0
    };
    ::poll(&wait, 1, static_cast<int>(std::min<int64_t>(run_->MsUntilTurn(), 100)));
    for (LiveEvent& event : run_->Turn()) {
      if (event.kind == LiveEvent::Kind::kCommandEnded) outcomes_[event.command] = std::move(event.outcome);
      if (event.kind == LiveEvent::Kind::kViolation) violations_.push_back(*std::move(event.violation));
      if (event.kind == LiveEvent::Kind::kRunEnded) ended_ = event.reason;
    }
    for (auto& [id, command] : commands_) outputs_[id] += ReadAll(command.output.get());
  }

  // False when it does not happen within a minute.
  template <typename Condition>
  bool Until(const Condition& condition) {
    const int64_t end = MonotonicNanos() + 60'000'000'000;
    while (!condition()) {
      if (MonotonicNanos() > end) return false;
      Turn();
    }
    return true;
  }

  CommandOutcome Await(uint32_t id) {
    EXPECT_TRUE(Until([&] { return outcomes_.count(id) != 0; })) << "the command does not end";
    outputs_[id] += ReadAll(commands_[id].output.get());
    return outcomes_[id];
  }
  bool AwaitOutput(uint32_t id, const std::string& text) {
    return Until([&] { return outputs_[id].find(text) != std::string::npos; });
  }
  std::string output(uint32_t id) { return outputs_[id]; }

  // Runs a command to its end; its output is returned.
  std::string Run(const std::string& script) {
    const uint32_t id = Begin(Shell(script));
    Await(id);
    return output(id);
  }

 private:
  std::unique_ptr<LiveRun> run_;
  std::map<uint32_t, LiveCommand> commands_;
  std::map<uint32_t, CommandOutcome> outcomes_;
  std::map<uint32_t, std::string> outputs_;
  std::vector<Violation> violations_;
  std::string ended_;
};

class LiveTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!runtime_->Describe().Can(policy::Ability::kSessions)) GTEST_SKIP() << name() << " keeps no sessions";
  }
  std::optional<Live> Open(policy::RunPlan plan) {
    Result<std::unique_ptr<LiveRun>> run = runtime_->Open(std::move(plan));
    EXPECT_TRUE(run) << run.error().message;
    if (!run) return std::nullopt;
    return std::make_optional<Live>(*std::move(run));
  }
};

TEST_F(LiveTest, CommandsRunSideBySide) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  LiveCommandOptions with_input;
  with_input.input = true;
  const uint32_t waiting = live->Begin(Shell("read line; echo got $line; exit 3"), with_input);
  const uint32_t quick = live->Begin(Shell("echo quick; exit 4"));
  EXPECT_EQ(live->Await(quick).exit_code, 4);
  EXPECT_EQ(live->output(quick), "quick\n");
  ASSERT_EQ(::write(live->command(waiting).input.get(), "word\n", 5), 5);
  const CommandOutcome outcome = live->Await(waiting);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.ending, Ending::kExited);
  EXPECT_EQ(live->output(waiting), "got word\n");
  EXPECT_FALSE(live->run().Signal(waiting, SIGTERM));
}

TEST_F(LiveTest, AProgramThatIsNotThereIsNotStarted) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  const CommandOutcome outcome = live->Await(live->Begin({{"no-such-program"}, {}}));
  EXPECT_EQ(outcome.ending, Ending::kNotExecutable);
  EXPECT_EQ(outcome.exec_errno, ENOENT);
  EXPECT_EQ(live->Run("echo still here"), "still here\n");
}

TEST_F(LiveTest, ProcessesOutliveTheirCommandAndEndWithTheRun) {
  const std::string mark = UniqueMark();
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  const uint32_t id = live->Begin(Shell("sleep " + mark + " >/dev/null 2>&1 & echo started"));
  EXPECT_EQ(live->Await(id).exit_code, 0);
  EXPECT_TRUE(AwaitMarked(mark, 1));
  EXPECT_EQ(live->Run("echo on"), "on\n");
  EXPECT_EQ(CountMarked(mark), 1);
  live->run().Close();
  EXPECT_EQ(CountMarked(mark), 0);
}

TEST_F(LiveTest, EndingACommandEndsItsTreeAndNoOther) {
  const std::string mark = UniqueMark(), other = UniqueMark();
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  const uint32_t kept = live->Begin(Shell("exec sleep " + other));
  // A child, a child in a session of its own, and a grandchild below it.
  const uint32_t ended = live->Begin(
      Shell("sleep " + mark + " & setsid sh -c 'sleep " + mark + " & sleep " + mark + "; true' & sleep " + mark));
  ASSERT_TRUE(AwaitMarked(mark, 6));  // four sleeps, and two shells whose script names them
  ASSERT_TRUE(live->run().EndCommand(ended));
  EXPECT_EQ(live->Await(ended).signal, SIGKILL);
  EXPECT_TRUE(AwaitMarked(mark, 0));
  EXPECT_EQ(CountMarked(other), 1);
  ASSERT_TRUE(live->run().Signal(kept, SIGTERM));
  EXPECT_EQ(live->Await(kept).signal, SIGTERM);
}

TEST_F(LiveTest, AWorkloadThatKillsEverythingDoesNotEndTheRun) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  live->Await(live->Begin(Shell("kill -9 -1; kill -9 1; kill -STOP 1; kill -USR1 1")));
  EXPECT_EQ(live->Run("echo still here"), "still here\n");
  EXPECT_EQ(live->ended(), "");
}

TEST_F(LiveTest, ATerminal) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  LiveCommandOptions options;
  options.terminal = true;
  options.rows = 33;
  options.columns = 77;
  const uint32_t id = live->Begin(Shell("stty size; read line; stty size; test -t 1 && echo terminal $line"), options);
  ASSERT_TRUE(live->AwaitOutput(id, "33 77"));
  ASSERT_TRUE(live->run().ResizeTerminal(live->command(id), 44, 88));
  ASSERT_EQ(::write(live->command(id).output.get(), "x\n", 2), 2);
  EXPECT_EQ(live->Await(id).exit_code, 0);
  EXPECT_NE(live->output(id).find("44 88"), std::string::npos);
  EXPECT_NE(live->output(id).find("terminal x"), std::string::npos);
}

TEST_F(LiveTest, MemoryThatRunsOutEndsACommandAndNotTheRun) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  const CommandOutcome outcome = live->Await(live->Begin(Python("x = bytearray(1 << 30)")));
  EXPECT_EQ(outcome.signal, SIGKILL);
  ASSERT_TRUE(live->Until([&] { return !live->violations().empty(); }));
  EXPECT_EQ(live->violations()[0].violation_class, ViolationClass::kMemoryLimit);
  EXPECT_EQ(live->Run("echo still here"), "still here\n");
}

TEST_F(LiveTest, ARefusedLookUpIsRecorded) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  live->Await(live->Begin(Python("import socket\ntry: socket.gethostbyname('a.example')\nexcept OSError: pass")));
  ASSERT_TRUE(live->Until([&] { return !live->violations().empty(); }));
  EXPECT_EQ(live->violations()[0].violation_class, ViolationClass::kNetworkAccess);
}

TEST_F(LiveTest, NothingRunsWhileItIsPaused) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  const uint32_t id = live->Begin(Shell("while :; do echo x >> /scratch/grows; done"));
  const auto size = [&] {
    const Result<InsideFileInfo> info = live->run().Stat("/scratch/grows");
    return info ? info->size : int64_t{0};
  };
  ASSERT_TRUE(live->Until([&] { return size() > 0; }));
  const Status paused = live->run().Pause();
  ASSERT_TRUE(paused) << paused.error().message;
  const int64_t before = size();
  for (int i = 0; i < 20; ++i) live->Turn();
  EXPECT_EQ(size(), before);
  ASSERT_TRUE(live->run().Resume());
  EXPECT_TRUE(live->Until([&] { return size() > before; }));
  ASSERT_TRUE(live->run().EndCommand(id));
  live->Await(id);
}

TEST_F(LiveTest, FilesGoInAndComeOut) {
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  LiveRun& run = live->run();
  ASSERT_TRUE(run.MakeDirectories("/scratch/a/b", 0755));
  {
    const Result<UniqueFd> file = run.OpenFile("/scratch/a/b/in", OpenFor::kWriting, 0755);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_EQ(::write(file->get(), "#!/bin/sh\nid -u\n", 16), 16);
  }
  ASSERT_TRUE(run.MakeLink("/scratch/a/link", "b/in"));
  // The inside user owns it, may run it and may change it.
  EXPECT_EQ(live->Run("/scratch/a/link; echo more >> /scratch/a/b/in; echo $?"), "1000\n0\n");
  const Result<UniqueFd> read = run.OpenFile("/scratch/a/link", OpenFor::kReading, 0);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ReadAll(read->get()), "#!/bin/sh\nid -u\nmore\n");
  const Result<std::vector<InsideFileInfo>> listed = run.ListDirectory("/scratch/a");
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->size(), 2U);
  EXPECT_EQ((*listed)[0].name, "b");
  EXPECT_EQ((*listed)[1].link_target, "b/in");
  ASSERT_TRUE(run.Remove("/scratch/a"));
  EXPECT_FALSE(run.Stat("/scratch/a"));
}

TEST_F(LiveTest, PathsOfTheWorkloadLeadNowhereElse) {
  char secret[] = "/tmp/caisson-secret-XXXXXX";
  const UniqueFd host(::mkstemp(secret));
  ASSERT_EQ(::write(host.get(), "secret", 6), 6);
  std::optional<Live> live = Open(Plan());
  ASSERT_TRUE(live);
  EXPECT_EQ(
      live->Run(std::string("cd /scratch; mkfifo pipe; ln -s ") + secret +
                " link; ln -s ../../../../../tmp up; ln -s /proc/1/root root; ln -s /proc/self/cwd self; echo done"),
      "done\n");
  LiveRun& run = live->run();
  for (const char* path : {"/scratch/link", "/scratch/pipe", "/scratch/root", "/scratch/self/x", "/proc/1/status",
                           "/dev/null", "/usr/../etc/shadow"}) {
    EXPECT_FALSE(run.OpenFile(path, OpenFor::kReading, 0)) << path;
  }
  const Result<UniqueFd> up = run.OpenFile("/scratch/up/made", OpenFor::kWriting, 0644);
  EXPECT_TRUE(up);  // the sandbox's own /tmp
  EXPECT_NE(::access("/tmp/made", F_OK), 0);
  EXPECT_FALSE(run.OpenFile("/usr/made", OpenFor::kWriting, 0644));
  EXPECT_FALSE(run.Remove("/usr/bin"));
  ::unlink(secret);
}

// What was changed in the workspace is in the layer when the run has ended, and the project is as it was.
TEST_F(LiveTest, ALayerOutlivesTheRun) {
  char base[] = "/var/tmp/caisson-layer-XXXXXX";
  ASSERT_NE(::mkdtemp(base), nullptr);
  const std::string place = base, project = place + "/project", layer = place + "/layer";
  for (const std::string& directory : {project, layer, layer + "/upper", layer + "/work"})
    ASSERT_EQ(::mkdir(directory.c_str(), 0755), 0);
  std::ofstream(project + "/kept") << "kept\n";
  std::ofstream(project + "/removed") << "removed\n";
  const auto plan = [&] {
    policy::RunPlan made = Plan();
    made.workspace_access = policy::Access::kCopyOnWrite;
    policy::PlannedMount mount;
    mount.source.fd = UniqueFd(::open(project.c_str(), O_PATH | O_CLOEXEC));
    mount.source.canonical = project;
    mount.source.is_directory = true;
    mount.target = "/workspace";
    mount.access = policy::Access::kCopyOnWrite;
    made.workspace_mount = std::move(mount);
    made.workspace_layer = policy::PlannedLayer{UniqueFd(::open(layer.c_str(), O_PATH | O_CLOEXEC)), layer};
    return made;
  };
  {
    std::optional<Live> live = Open(plan());
    ASSERT_TRUE(live);
    EXPECT_EQ(live->Run("cat kept; rm removed; echo new > new; echo more >> kept; ls; grep -c " + place +
                        " /proc/self/mountinfo"),
              "kept\nkept\nnew\n0\n");
  }
  std::ifstream fresh(layer + "/upper/new");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(fresh), {}), "new\n");
  struct stat info {};
  ASSERT_EQ(::lstat((layer + "/upper/removed").c_str(), &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode) && info.st_rdev == 0);
  ASSERT_EQ(::lstat((layer + "/upper/new").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(::access((project + "/removed").c_str(), F_OK), 0);
  // It can be taken up again.
  std::optional<Live> again = Open(plan());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->Run("cat kept; ls"), "kept\nmore\nkept\nnew\n");
  again->run().Close();
  ASSERT_EQ(::system(("rm -rf " + place).c_str()), 0);
}

}  // namespace
}  // namespace caisson::runtime
