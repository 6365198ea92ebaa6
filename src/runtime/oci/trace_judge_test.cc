#include "runtime/oci/trace_judge.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace caisson::runtime::oci {
namespace {

TraceJudge::Options Rules() {
  TraceJudge::Options options;
  options.writable = {"/scratch", "/tmp"};
  options.ignored_components = {"__pycache__"};
  options.scratch_bytes = 1 << 20;
  options.leads_through_link = [](const std::string& path) { return path.rfind("/scratch/link", 0) == 0; };
  return options;
}

class TraceJudgeTest : public ::testing::Test {
 protected:
  TraceJudge judge_{*sandbox::FindSeccompProgram("balanced"), nullptr, Rules()};

  static TraceEvent Open(const std::string& path, uint64_t flags, int error) {
    TraceEvent event;
    event.number = SYS_openat;
    event.arguments = {static_cast<uint64_t>(int64_t{AT_FDCWD}), 0, flags, 0644, 0, 0};
    event.cwd = "/usr";
    event.path = path;
    event.error = error;
    event.pid = 7;
    return event;
  }
  static TraceEvent Call(int32_t number, int error, std::array<uint64_t, 6> arguments = {}) {
    TraceEvent event;
    event.number = number;
    event.error = error;
    event.arguments = arguments;
    return event;
  }
  static TraceEvent Connect(const char* address, uint16_t port, int error) {
    struct sockaddr_in peer {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(port);
    ::inet_pton(AF_INET, address, &peer.sin_addr);
    TraceEvent event = Call(SYS_connect, error);
    event.address.assign(reinterpret_cast<const char*>(&peer), sizeof(peer));
    return event;
  }
  static std::string Text(const Violation& violation, const std::string& key) {
    for (const auto& [name, value] : violation.evidence) {
      if (name == key && std::holds_alternative<std::string>(value)) return std::get<std::string>(value);
    }
    return "";
  }
};

TEST_F(TraceJudgeTest, ARefusedWriteElsewhereIsAViolation) {
  const auto violation = judge_.Judge(Open("/usr/planted", O_WRONLY | O_CREAT, EACCES));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->violation_class, ViolationClass::kFilesystemWrite);
  EXPECT_EQ(violation->reason, "fs.write");
  EXPECT_EQ(violation->source, EvidenceSource::kOutside);
  EXPECT_EQ(violation->pid, 7);
  EXPECT_EQ(Text(*violation, "path"), "/usr/planted");
  EXPECT_EQ(Text(*violation, "answer"), "EACCES");
  EXPECT_EQ(Text(*judge_.Judge(Open("../etc/./x", O_RDWR, EROFS)), "path"), "/etc/x");
}

TEST_F(TraceJudgeTest, OrdinaryOpensAreNot) {
  EXPECT_FALSE(judge_.Judge(Open("/usr/bin/env", O_RDONLY, EACCES)));
  EXPECT_FALSE(judge_.Judge(Open("/scratch/new", O_WRONLY | O_CREAT, 0)));
  EXPECT_FALSE(judge_.Judge(Open("/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0)));
  EXPECT_FALSE(judge_.Judge(Open("/usr/missing", O_WRONLY, ENOENT))) << "writes nothing";
  EXPECT_TRUE(judge_.Judge(Open("/usr/missing/x", O_WRONLY | O_CREAT, ENOENT))) << "would have created it";
  EXPECT_FALSE(judge_.Judge(Open("/scratch/missing/x", O_WRONLY | O_CREAT, ENOENT)));
  EXPECT_FALSE(judge_.Judge(Open("/scratch/closed/x", O_WRONLY | O_CREAT, EACCES))) << "closed by the workload itself";
  EXPECT_FALSE(judge_.Judge(Open("/proc/self/comm", O_WRONLY, EROFS)));
  EXPECT_FALSE(judge_.Judge(Open("/usr/lib/__pycache__/x.pyc", O_WRONLY | O_CREAT, EACCES)));
}

TEST_F(TraceJudgeTest, APathThatLedElsewhereIsAViolation) {
  EXPECT_TRUE(judge_.Judge(Open("/scratch/link/x", O_WRONLY | O_CREAT, EACCES)));
  EXPECT_TRUE(judge_.Judge(Open("/scratch/any", O_WRONLY | O_CREAT, EROFS))) << "scratch is never read-only";
  TraceEvent unnamed = Open("x", O_WRONLY | O_CREAT, EACCES);
  unnamed.cwd.clear();
  EXPECT_TRUE(judge_.Judge(unnamed)) << "what cannot be named is reported";
}

TEST_F(TraceJudgeTest, WithoutAPathTheErrorDecides) {
  for (const int error : {EROFS, EACCES}) {
    for (const int32_t call : {SYS_mkdir, SYS_unlink, SYS_rename, SYS_symlinkat, SYS_truncate, SYS_utimensat}) {
      const auto violation = judge_.Judge(Call(call, error));
      ASSERT_TRUE(violation) << call;
      EXPECT_EQ(violation->violation_class, ViolationClass::kFilesystemWrite);
      EXPECT_EQ(Text(*violation, "path"), "");
    }
  }
  EXPECT_TRUE(judge_.Judge(Call(SYS_chmod, EPERM)));
  EXPECT_FALSE(judge_.Judge(Call(SYS_chown, EPERM))) << "cp -p";
  for (const int error : {0, ENOENT, EEXIST, ENOTEMPTY, EXDEV, ENOTDIR}) {
    EXPECT_FALSE(judge_.Judge(Call(SYS_mkdir, error))) << error;
    EXPECT_FALSE(judge_.Judge(Call(SYS_rename, error))) << error;
  }
  const auto large = judge_.Judge(Call(SYS_fallocate, 0, {3, 0, 0, 1 << 21, 0, 0}));
  ASSERT_TRUE(large);
  EXPECT_EQ(large->reason, "scratch_limit");
}

TEST_F(TraceJudgeTest, PeersByTheirAddress) {
  const auto violation = judge_.Judge(Connect("93.184.216.34", 80, EHOSTUNREACH));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->violation_class, ViolationClass::kNetworkAccess);
  EXPECT_EQ(Text(*violation, "address"), "93.184.216.34");
  EXPECT_FALSE(judge_.Judge(Connect("127.0.0.1", 80, EINPROGRESS)));
  EXPECT_FALSE(judge_.Judge(Connect("127.0.0.53", 53, 0)));
  EXPECT_TRUE(judge_.Judge(Call(SYS_sendto, EHOSTUNREACH, {3, 0, 1, 0, 0x7f00, 16})));
  EXPECT_FALSE(judge_.Judge(Call(SYS_sendto, 0, {3, 0, 1, 0, 0x7f00, 16})));
  EXPECT_FALSE(judge_.Judge(Call(SYS_sendmsg, EPIPE)));
}

TEST_F(TraceJudgeTest, ForbiddenCallsWhateverTheAnswer) {
  const auto refused = judge_.Judge(Call(SYS_mount, EPERM));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->violation_class, ViolationClass::kSyscall);
  EXPECT_EQ(Text(*refused, "answer"), "EPERM");
  const auto granted = judge_.Judge(Call(SYS_unshare, 0, {CLONE_NEWUSER, 0, 0, 0, 0, 0}));
  ASSERT_TRUE(granted);
  EXPECT_EQ(Text(*granted, "answer"), "killed");
  const auto deadly = judge_.Judge(Call(SYS_pivot_root, EBUSY));
  ASSERT_TRUE(deadly);
  EXPECT_EQ(Text(*deadly, "answer"), "killed");
  EXPECT_FALSE(judge_.Judge(Call(SYS_clone, 0, {SIGCHLD, 0, 0, 0, 0, 0})));
}

TEST_F(TraceJudgeTest, AProbeOfTheProfileIsNotDeadly) {
  TraceJudge::Options options = Rules();
  options.probes = {{"syscall.numa", "", "a library asks for memory near the processor"}};
  const TraceJudge judge(*sandbox::FindSeccompProgram("balanced"), nullptr, std::move(options));
  const std::vector<int32_t> calls = judge.RawCalls();
  ASSERT_TRUE(std::find(calls.begin(), calls.end(), SYS_mbind) != calls.end());
  const auto violation = judge.Judge(Call(SYS_move_pages, 0));
  ASSERT_TRUE(violation);
  EXPECT_EQ(Text(*violation, "answer"), violation->reason == "syscall.numa" ? "granted" : "killed");
}

TEST_F(TraceJudgeTest, CountsRefusedProcesses) {
  EXPECT_TRUE(TraceJudge::IsRefusedFork(Call(SYS_clone, EAGAIN)));
  EXPECT_FALSE(TraceJudge::IsRefusedFork(Call(SYS_clone, 0)));
  EXPECT_FALSE(TraceJudge::IsRefusedFork(Call(SYS_clone3, ENOSYS)));
  EXPECT_FALSE(TraceJudge::IsRefusedFork(Call(SYS_sendto, EAGAIN)));
}

}  // namespace
}  // namespace caisson::runtime::oci
