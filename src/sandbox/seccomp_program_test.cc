// Compares the compiled filters with the meaning of the JSON, as support/seccomp_oracle.h reads it: for every call
// number and for the argument values where a mistake would hide.
#include "sandbox/seccomp_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "linux/syscall_names.h"
#include "support/bpf_evaluator.h"
#include "support/seccomp_oracle.h"

namespace caisson::sandbox {
namespace {

using nlohmann::json;
using support::SeccompOracle;
using Arguments = std::array<uint64_t, 6>;

constexpr uint32_t kX32Bit = 0x40000000;
constexpr uint32_t kForeignArchitectures[] = {AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64,    0,
                                              0xffffffff,      AUDIT_ARCH_X86_64 ^ 1, AUDIT_ARCH_X86_64 & 0xffff};
constexpr uint64_t kHighBit = uint64_t{1} << 32;

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kNotify = SECCOMP_RET_USER_NOTIF;
constexpr uint32_t Errno(int value) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(value); }

seccomp_data MakeCall(uint32_t number, const Arguments& arguments, uint32_t architecture = AUDIT_ARCH_X86_64) {
  seccomp_data data = {};
  data.nr = static_cast<int>(number);
  data.arch = architecture;
  std::copy(arguments.begin(), arguments.end(), data.args);
  return data;
}

std::string Describe(const seccomp_data& data) {
  std::ostringstream text;
  const char* name = linux_sys::SyscallName(data.nr);
  text << (name != nullptr ? name : "?") << " " << data.nr << std::hex << " arch " << data.arch << " args";
  for (const uint64_t argument : data.args) text << " " << argument;
  return text.str();
}

class SeccompProgramTest : public ::testing::TestWithParam<const char*> {
 protected:
  SeccompProgramTest()
      : program_(*FindSeccompProgram(GetParam())),
        evaluator_(program_.filter),
        oracle_(CAISSON_PROFILE_DIR "/seccomp", GetParam()) {}

  uint32_t Ask(long number, const Arguments& arguments = {}) {
    return evaluator_.Run(MakeCall(static_cast<uint32_t>(number), arguments)).value_or(0);
  }

  // The reason of the rule the supervisor would act on, or "" when the call does not notify.
  std::string Reason(long number, const Arguments& arguments = {}) {
    const seccomp_data data = MakeCall(static_cast<uint32_t>(number), arguments);
    if (evaluator_.Run(data) != kNotify) return "";
    const NotifyRule* rule = FindNotifyRule(program_, data);
    return rule != nullptr ? rule->reason : "no rule";
  }

  // Compares the program with the oracle about one call. Returns false when they differ, to keep failures few.
  bool Check(const seccomp_data& data) {
    const SeccompOracle::Verdict expected = oracle_.Decide(data);
    const std::optional<uint32_t> actual = evaluator_.Run(data);
    EXPECT_EQ(actual, expected.action) << Describe(data);
    if (actual != expected.action) return false;
    EXPECT_EQ(RunFilter(program_, data), *actual) << Describe(data);
    return *actual != kNotify || CheckNotifyRule(data, *expected.extension);
  }

  bool CheckNotifyRule(const seccomp_data& data, const json& extension) {
    const NotifyRule* rule = FindNotifyRule(program_, data);
    EXPECT_NE(rule, nullptr) << Describe(data);
    if (rule == nullptr) return false;
    used_rules_.insert(rule);
    const bool same = support::SaysTheSame(*rule, extension);
    EXPECT_TRUE(same) << Describe(data) << " " << extension << " is " << rule->reason;
    return same;
  }

  // Every number, native and x32, with plain arguments, for every architecture.
  bool SweepNumbers() {
    std::vector<uint32_t> numbers;
    for (uint32_t number = 0; number < 1024; ++number) numbers.insert(numbers.end(), {number, number | kX32Bit});
    numbers.insert(numbers.end(), {kX32Bit - 1, 0x7fffffff, 0x80000000, UINT_MAX - 1, UINT_MAX});
    for (const uint32_t number : numbers) {
      for (const uint64_t fill : {uint64_t{0}, uint64_t{1}, uint64_t{0xffffffff}, ~uint64_t{0}}) {
        const Arguments arguments = {fill, fill, fill, fill, fill, fill};
        if (!Check(MakeCall(number, arguments))) return false;
        for (const uint32_t architecture : kForeignArchitectures) {
          if (!Check(MakeCall(number, arguments, architecture))) return false;
        }
      }
    }
    return true;
  }

  // The values around every argument rule of one call: all combinations of the coarse ones, and from every rule's own
  // point every single bit flipped.
  bool SweepArguments(int number) {
    std::map<size_t, std::set<uint64_t>> coarse;
    for (const json& entry : oracle_.EntriesOf(number)) {
      Arguments point = {};
      for (const json& argument : entry.value("args", json::array())) {
        const size_t index = argument["index"];
        const uint64_t mask = argument["value"];
        const uint64_t datum = argument["valueTwo"];
        coarse[index].insert({0, ~uint64_t{0}, datum, datum + 1, datum - 1, datum | ~mask, datum | kHighBit,
                              datum ^ ~uint64_t{0xffffffff}});
        point[index] = datum;
      }
      if (!SweepBits(number, point)) return false;
    }
    Arguments arguments = {};
    return SweepCombinations(number, coarse, coarse.begin(), arguments);
  }

  bool SweepBits(int number, const Arguments& point) {
    for (size_t index = 0; index < point.size(); ++index) {
      for (unsigned bit = 0; bit < 64; ++bit) {
        Arguments flipped = point;
        flipped[index] ^= uint64_t{1} << bit;
        if (!Check(MakeCall(static_cast<uint32_t>(number), flipped))) return false;
      }
    }
    return true;
  }

  bool SweepCombinations(int number, const std::map<size_t, std::set<uint64_t>>& values,
                         std::map<size_t, std::set<uint64_t>>::const_iterator next, Arguments& arguments) {
    if (next == values.end()) return Check(MakeCall(static_cast<uint32_t>(number), arguments));
    for (const uint64_t value : next->second) {
      arguments[next->first] = value;
      if (!SweepCombinations(number, values, std::next(next), arguments)) return false;
    }
    return true;
  }

  const SeccompProgram& program_;
  support::BpfEvaluator evaluator_;
  const SeccompOracle oracle_;
  std::set<const NotifyRule*> used_rules_;
};

INSTANTIATE_TEST_SUITE_P(Profiles, SeccompProgramTest,
                         ::testing::Values("balanced", "balanced-watched", "session", "session-watched", "strict"),
                         [](const auto& profile) {
                           std::string name = profile.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(SeccompProgramTest, AgreesWithTheJsonEverywhere) {
  ASSERT_EQ(evaluator_.Validate(), "");
  ASSERT_TRUE(SweepNumbers());
  for (int number = 0; number < 1024; ++number) ASSERT_TRUE(SweepArguments(number));
  // An instruction that was not executed was not compared.
  EXPECT_EQ(evaluator_.NeverExecuted(), std::vector<size_t>{});
  for (const NotifyRule& rule : program_.rules) {
    EXPECT_EQ(used_rules_.count(&rule), 1u) << "never reached: " << rule.number << " " << rule.reason;
  }
}

TEST_P(SeccompProgramTest, KnowsEveryNameOfTheJson) {
  std::set<std::string> known;
  for (int number = 0; number < 1024; ++number) {
    if (linux_sys::SyscallName(number) != nullptr) known.insert(linux_sys::SyscallName(number));
  }
  for (const auto& [name, entries] : oracle_.entries()) EXPECT_EQ(known.count(name), 1u) << name;
}

TEST_P(SeccompProgramTest, SortsItsRules) {
  EXPECT_TRUE(std::is_sorted(program_.rules.begin(), program_.rules.end(),
                             [](const NotifyRule& a, const NotifyRule& b) { return a.number < b.number; }));
  EXPECT_EQ(program_.rules.front().number, kForeignArchitecture);
  EXPECT_EQ(std::string(program_.sha256).size(), 64u);
}

TEST_P(SeccompProgramTest, AllowsHotCallsWhateverTheArguments) {
  for (const long number :
       {SYS_read,     SYS_write,        SYS_close,          SYS_fstat,      SYS_newfstatat, SYS_lseek,     SYS_munmap,
        SYS_brk,      SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_pread64,    SYS_pwrite64,   SYS_readv,     SYS_writev,
        SYS_access,   SYS_pipe2,        SYS_sched_yield,    SYS_madvise,    SYS_dup2,       SYS_nanosleep, SYS_getpid,
        SYS_recvfrom, SYS_recvmsg,      SYS_execve,         SYS_exit,       SYS_exit_group, SYS_wait4,     SYS_fcntl,
        SYS_getcwd,   SYS_readlink,     SYS_gettid,         SYS_getdents64, SYS_epoll_wait, SYS_epoll_ctl, SYS_poll,
        SYS_ppoll,    SYS_statx,        SYS_clock_gettime,  SYS_getrandom,  SYS_rseq}) {
    for (const uint64_t fill : {uint64_t{0}, uint64_t{0xffffffff}, ~uint64_t{0}, uint64_t{0x5555555555555555}}) {
      EXPECT_EQ(Ask(number, {fill, fill, fill, fill, fill, fill}), kAllow)
          << linux_sys::SyscallName(static_cast<int>(number));
    }
    // No instruction may look at the arguments, or the kernel cannot cache the answer.
    support::BpfEvaluator fresh(program_.filter);
    fresh.Run(MakeCall(static_cast<uint32_t>(number), {}));
    const std::vector<size_t> skipped = fresh.NeverExecuted();
    for (size_t i = 0; i < program_.filter.size(); ++i) {
      const bool loads = BPF_CLASS(program_.filter[i].code) == BPF_LD;
      const bool executed = !std::binary_search(skipped.begin(), skipped.end(), i);
      EXPECT_FALSE(loads && executed && program_.filter[i].k >= offsetof(seccomp_data, instruction_pointer));
    }
  }
  const bool strict = std::string(GetParam()) == "strict";
  EXPECT_EQ(Ask(SYS_mmap, {0, 4096, 3}), kAllow);
  EXPECT_EQ(Ask(SYS_mmap, {0, 4096, 7}), strict ? Errno(EACCES) : kAllow);
  EXPECT_EQ(Ask(SYS_mprotect, {0, 4096, 6}), strict ? Errno(EACCES) : kAllow);
  EXPECT_EQ(Ask(SYS_mprotect, {0, 4096, 5}), kAllow);
}

TEST_P(SeccompProgramTest, ObservesWriteIntentOnly) {
  EXPECT_EQ(Ask(SYS_openat, {0, 0, O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW}), kAllow);
  // In a session the diff shows what was written.
  const char* const write = std::string(GetParam()).rfind("session", 0) == 0 ? "" : "fs.write";
  for (const uint64_t flags : {O_WRONLY, O_RDWR, O_ACCMODE, O_CREAT, O_TRUNC, O_CREAT | O_CLOEXEC}) {
    EXPECT_EQ(Reason(SYS_openat, {0, 0, flags}), write);
    EXPECT_EQ(Reason(SYS_open, {0, flags}), write);
  }
  EXPECT_EQ(Ask(SYS_openat, {0, 0, uint64_t{O_WRONLY} << 32}), kAllow);  // the kernel sees O_RDONLY
  EXPECT_EQ(Reason(SYS_mkdir), write);
  EXPECT_EQ(Reason(452), write);  // fchmodat2
  EXPECT_EQ(Reason(SYS_mknod, {0, S_IFIFO | 0600}), write);
  EXPECT_EQ(Reason(SYS_mknod, {0, S_IFCHR | 0600}), "fs.device");
  EXPECT_EQ(Reason(SYS_mknodat, {0, 0, S_IFBLK | 0600}), "fs.device");
  EXPECT_EQ(Reason(SYS_connect), "net.connect");
  EXPECT_EQ(Ask(SYS_sendto), kAllow);
  EXPECT_EQ(Reason(SYS_sendto, {0, 0, 0, 0, uint64_t{1} << 32}), "net.send");
}

TEST_P(SeccompProgramTest, RefusesSocketsThatReachTheKernel) {
  EXPECT_EQ(Ask(SYS_socket, {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC}), kAllow);
  EXPECT_EQ(Ask(SYS_socket, {AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 6}), kAllow);
  EXPECT_EQ(Ask(SYS_socket, {AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK}), kAllow);
  EXPECT_EQ(Ask(SYS_socket, {AF_NETLINK, SOCK_RAW, 0}), kAllow);
  EXPECT_EQ(Ask(SYS_socket, {AF_NETLINK, SOCK_RAW, 12}), Errno(EAFNOSUPPORT));
  EXPECT_EQ(Ask(SYS_socket, {AF_INET, SOCK_STREAM, 132}), Errno(EPROTONOSUPPORT));  // SCTP
  EXPECT_EQ(Ask(SYS_socket, {AF_APPLETALK, SOCK_DGRAM}), Errno(EAFNOSUPPORT));
  EXPECT_EQ(Reason(SYS_socket, {AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1}), "net.raw");
  EXPECT_EQ(Reason(SYS_socket, {AF_INET, SOCK_PACKET}), "net.family");
  EXPECT_EQ(Reason(SYS_socket, {AF_ALG | (uint64_t{1} << 32), SOCK_SEQPACKET}), "net.family");
  EXPECT_EQ(Reason(SYS_setsockopt, {3, 6, 31}), "net.option");
  EXPECT_EQ(Ask(SYS_setsockopt, {3, SOL_SOCKET, SO_REUSEADDR}), kAllow);
}

TEST_P(SeccompProgramTest, RefusesWaysIntoTheKernel) {
  for (const uint64_t high : {uint64_t{0}, uint64_t{1} << 32, uint64_t{1} << 63}) {
    EXPECT_EQ(Reason(SYS_ioctl, {0, TIOCSTI | high}), "syscall.tty");
    EXPECT_EQ(Reason(SYS_clone, {CLONE_NEWUSER | high}), "syscall.ns");
    EXPECT_EQ(Ask(SYS_futex, {0, 11 | high}), Errno(ENOSYS));
    EXPECT_EQ(Ask(SYS_personality, {0x0400000 | high}), Errno(EPERM));  // READ_IMPLIES_EXEC
  }
  EXPECT_EQ(Ask(SYS_ioctl, {0, TIOCGWINSZ}), kAllow);
  // Where no cgroup counts tasks, threads are observed being made; processes never are.
  const bool watched = std::string(GetParam()).find("-watched") != std::string::npos;
  EXPECT_EQ(Reason(SYS_clone, {CLONE_VM | CLONE_THREAD | CLONE_SIGHAND}), watched ? "limit.pids" : "");
  for (const uint64_t flags : {uint64_t{SIGCHLD}, uint64_t{CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD},
                               uint64_t{CLONE_VM | CLONE_VFORK | SIGCHLD}}) {
    EXPECT_EQ(Ask(SYS_clone, {flags}), kAllow);
  }
  EXPECT_EQ(Ask(SYS_fork), kAllow);
  EXPECT_EQ(Ask(SYS_vfork), kAllow);
  EXPECT_EQ(Ask(SYS_futex, {0, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME}), kAllow);
  for (const long number : {SYS_clone3, SYS_io_uring_setup, SYS_futex_waitv, SYS_memfd_secret, SYS_splice, 1000}) {
    EXPECT_EQ(Ask(number), Errno(ENOSYS)) << number;
  }
  EXPECT_EQ(Reason(SYS_unshare), "syscall.ns");
  EXPECT_EQ(Reason(SYS_mount), "syscall.mount");
  EXPECT_EQ(Reason(SYS_ptrace), "syscall.ptrace");
  EXPECT_EQ(Reason(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER}), "syscall.kernel");
  EXPECT_EQ(Ask(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC}), kAllow);
  const bool strict = std::string(GetParam()) == "strict";
  EXPECT_EQ(Reason(SYS_memfd_create), strict ? "fs.exec" : "");
  EXPECT_EQ(Reason(SYS_execveat, {0, 0, 0, 0, AT_EMPTY_PATH}), strict ? "fs.exec" : "");
}

TEST_P(SeccompProgramTest, KillsExploitIndicatorsAndForeignCalls) {
  std::vector<seccomp_data> calls = {MakeCall(SYS_read | kX32Bit, {}), MakeCall(SYS_read, {}, AUDIT_ARCH_I386)};
  for (const long number : {SYS_bpf, SYS_finit_module, SYS_kexec_load, SYS_open_by_handle_at, SYS_setns}) {
    calls.push_back(MakeCall(static_cast<uint32_t>(number), {}));
  }
  for (const seccomp_data& call : calls) {
    EXPECT_EQ(evaluator_.Run(call), kNotify) << Describe(call);
    const NotifyRule* rule = FindNotifyRule(program_, call);
    ASSERT_NE(rule, nullptr) << Describe(call);
    EXPECT_EQ(rule->disposition, Disposition::kKill) << Describe(call);
  }
  EXPECT_STREQ(FindNotifyRule(program_, calls[0])->reason, "syscall.arch");
  EXPECT_STREQ(FindNotifyRule(program_, calls[1])->reason, "syscall.arch");
  EXPECT_EQ(Ask(UINT_MAX), Errno(ENOSYS));  // -1 is the kernel's "no call", not an x32 one
}

// Calls that a profile adds are decided in front of the base; all other calls are unaffected.
TEST_P(SeccompProgramTest, ExtendingChangesOnlyWhatIsNamed) {
  // Calls that the base allows, refuses with an errno, notifies about, kills for, and does not know.
  const std::vector<int32_t> allowed = {SYS_ptrace, SYS_bpf, SYS_io_uring_setup, 1000};
  const std::vector<int32_t> denied = {SYS_read, SYS_socket, SYS_openat, SYS_mount, SYS_setns, SYS_clone3};
  const ExtendedProgram extended(program_, allowed, denied);
  support::BpfEvaluator evaluator(extended.program().filter);
  ASSERT_EQ(evaluator.Validate(), "");
  EXPECT_LE(extended.program().filter.size(), size_t{BPF_MAXINSNS});
  const auto named = [](const std::vector<int32_t>& list, uint32_t number) {
    return std::find(list.begin(), list.end(), static_cast<int32_t>(number)) != list.end();
  };
  std::vector<uint32_t> numbers = {kX32Bit - 1, 0x7fffffff, 0x80000000, UINT_MAX - 1, UINT_MAX};
  for (uint32_t number = 0; number < 1024; ++number) numbers.insert(numbers.end(), {number, number | kX32Bit});
  for (const uint32_t number : numbers) {
    for (const uint64_t fill : {uint64_t{0}, uint64_t{1}, uint64_t{0xffffffff}, ~uint64_t{0}}) {
      for (const uint32_t architecture : {uint32_t{AUDIT_ARCH_X86_64}, uint32_t{AUDIT_ARCH_I386}, uint32_t{0}}) {
        const seccomp_data call = MakeCall(number, {fill, fill, fill, fill, fill, fill}, architecture);
        const std::optional<uint32_t> action = evaluator.Run(call);
        const NotifyRule* rule = FindNotifyRule(extended.program(), call);
        if (architecture == AUDIT_ARCH_X86_64 && named(allowed, number)) {
          ASSERT_EQ(action, kAllow) << Describe(call);
        } else if (architecture == AUDIT_ARCH_X86_64 && named(denied, number)) {
          ASSERT_EQ(action, kNotify) << Describe(call);
          ASSERT_NE(rule, nullptr) << Describe(call);
          ASSERT_STREQ(rule->reason, "syscall.profile") << Describe(call);
          ASSERT_EQ(rule->disposition, Disposition::kDeny);
          ASSERT_EQ(rule->errno_value, EPERM);
        } else {
          ASSERT_EQ(action, evaluator_.Run(call)) << Describe(call);
          const NotifyRule* base = FindNotifyRule(program_, call);
          ASSERT_EQ(rule == nullptr, base == nullptr) << Describe(call);
          if (rule != nullptr) {
            ASSERT_STREQ(rule->reason, base->reason) << Describe(call);
          }
        }
      }
    }
  }
  EXPECT_TRUE(std::is_sorted(extended.program().rules.begin(), extended.program().rules.end(),
                             [](const NotifyRule& a, const NotifyRule& b) { return a.number < b.number; }));
}

TEST_P(SeccompProgramTest, ExtendingByEveryCallStillFits) {
  std::vector<int32_t> half[2];
  for (int32_t number = 0; number < linux_sys::kSyscallNumberEnd; ++number) {
    if (linux_sys::SyscallName(number) != nullptr) half[number % 2].push_back(number);
  }
  const ExtendedProgram extended(program_, half[0], half[1]);
  support::BpfEvaluator evaluator(extended.program().filter);
  EXPECT_EQ(evaluator.Validate(), "");
  EXPECT_LE(extended.program().filter.size(), size_t{BPF_MAXINSNS});
  for (const int32_t number : half[0]) EXPECT_EQ(evaluator.Run(MakeCall(static_cast<uint32_t>(number), {})), kAllow);
  for (const int32_t number : half[1]) EXPECT_EQ(evaluator.Run(MakeCall(static_cast<uint32_t>(number), {})), kNotify);
}

TEST(SeccompProgramLookupTest, KnowsBuiltInsAndNames) {
  EXPECT_EQ(FindSeccompProgram("none"), nullptr);
  EXPECT_STREQ(linux_sys::SyscallName(SYS_openat), "openat");
  EXPECT_STREQ(linux_sys::SyscallName(SYS_io_uring_setup), "io_uring_setup");
  EXPECT_EQ(linux_sys::SyscallName(-1), nullptr);
  EXPECT_EQ(linux_sys::SyscallName(100000), nullptr);
}

TEST(BpfEvaluatorTest, RejectsInvalidPrograms) {
  const sock_filter ret = BPF_STMT(BPF_RET | BPF_K, kAllow);
  const std::vector<std::vector<sock_filter>> invalid = {
      {},
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)},       // no return at the end
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), ret},  // unaligned
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, sizeof(seccomp_data)), ret},
      {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0), ret},  // unknown instruction
      {BPF_STMT(BPF_JMP | BPF_JA, 1), ret},          // behind the end
      {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1), ret},
  };
  for (const auto& program : invalid) EXPECT_NE(support::BpfEvaluator(program).Validate(), "");
  const std::vector<sock_filter> valid = {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), ret, ret};
  support::BpfEvaluator evaluator(valid);
  EXPECT_EQ(evaluator.Validate(), "");
  EXPECT_EQ(evaluator.Run({}), kAllow);
  EXPECT_EQ(evaluator.NeverExecuted(), std::vector<size_t>{1});
}

}  // namespace
}  // namespace caisson::sandbox
