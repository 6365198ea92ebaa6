// Finds the system calls that the init process of a sandbox makes after its filter is installed, by denying them:
// policy/needed_calls.h lists exactly these calls.
#include "policy/needed_calls.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "linux/syscall_names.h"
#include "sandbox/sandbox.h"

namespace caisson::sandbox {
namespace {

constexpr int32_t kMostNumber = 1024;
constexpr unsigned char kExit = 60, kExitGroup = 231;

// Returns a program without a library or a loader that makes one call: `number`(0).
std::string ProgramThatCalls(unsigned char number) {
  std::string elf(64 + 56, '\0');
  const auto put = [&elf](size_t at, uint64_t value, size_t width) {
    for (size_t i = 0; i < width; ++i) elf[at + i] = static_cast<char>(value >> (8 * i));
  };
  const std::string code = {'\xb8', static_cast<char>(number), 0, 0, 0, '\x31', '\xff', '\x0f', '\x05'};
  constexpr uint64_t kBase = 0x400000;
  elf.replace(0, 7,
              std::string("\x7f"
                          "ELF\x02\x01\x01",
                          7));
  put(16, 2, 2);   // an executable
  put(18, 62, 2);  // x86-64
  put(20, 1, 4);
  put(24, kBase + 120, 8);  // entry point: after the headers
  put(32, 64, 8);           // program headers
  put(52, 64, 2);
  put(54, 56, 2);
  put(56, 1, 2);
  put(64, 1, 4);  // one loadable segment
  put(68, 5, 4);  // readable and executable
  put(80, kBase, 8);
  put(88, kBase, 8);
  put(96, 120 + code.size(), 8);
  put(104, 120 + code.size(), 8);
  put(112, 4096, 8);
  return elf + code;
}

Spec SmallSpec(std::vector<int32_t> denied) {
  Spec spec;
  spec.seccomp = FindSeccompProgram("balanced");
  spec.seccomp_watched = FindSeccompProgram("balanced-watched");
  spec.limits = {int64_t{64} << 20, 16, 2000, 65536, int64_t{8} << 20, 256};
  spec.allow_watched_limits = true;
  spec.system_paths = {"/usr", "/bin", "/lib", "/lib64"};
  spec.devices = {"null"};
  spec.workspace_files.push_back({"exit", ProgramThatCalls(kExit), 0755, FileKind::kRegular});
  spec.workspace_files.push_back({"exit_group", ProgramThatCalls(kExitGroup), 0755, FileKind::kRegular});
  spec.denied_calls = std::move(denied);
  return spec;
}

// Returns "" when two commands ran as if no call were denied, otherwise the first difference.
std::string Trouble(Spec spec, const std::vector<std::string>& argv, const CommandIo& io = CommandIo::Capture()) {
  const bool missing = argv[0] == "/workspace/missing";
  Result<std::unique_ptr<Sandbox>> sandbox = Sandbox::Create(std::move(spec));
  if (!sandbox) return sandbox.error().message;
  for (const bool last : {false, true}) {
    RunOptions options;
    options.timeout_ms = 5000;
    options.last = last;
    const Result<CommandOutcome> outcome = (*sandbox)->Run({argv, {}, "/workspace"}, io, options);
    if (!outcome) return outcome.error().message;
    if (!outcome->violations.empty()) return outcome->violations[0].reason;
    if (outcome->ending != (missing ? Ending::kNotExecutable : Ending::kExited)) return "it ended otherwise";
    if (!missing && outcome->exit_code != 0) return "exit " + std::to_string(outcome->exit_code);
  }
  return "";
}

std::vector<int32_t> EverythingElse() {
  std::vector<int32_t> numbers;
  for (int32_t number = 0; number < kMostNumber; ++number) {
    const char* name = linux_sys::SyscallName(number);
    if (name != nullptr && !policy::IsNeededCall(name)) numbers.push_back(number);
  }
  return numbers;
}

TEST(NeededCallsTest, ControlRuns) {
  EXPECT_EQ(Trouble(SmallSpec({}), {"/workspace/exit"}), "");
  EXPECT_EQ(Trouble(SmallSpec({}), {"/workspace/missing"}), "");
}

TEST(NeededCallsTest, NothingElseIsNeeded) {
  const std::vector<int32_t> denied = EverythingElse();
  ASSERT_GT(denied.size(), 300U);
  EXPECT_EQ(Trouble(SmallSpec(denied), {"/workspace/exit_group"}), "");
  EXPECT_EQ(Trouble(SmallSpec(denied), {"/workspace/missing"}), "");
  EXPECT_EQ(Trouble(SmallSpec(denied), {"/workspace/exit_group"}, CommandIo::Terminal(-1, -1)), "");
}

// Tests each call in its own process, all in parallel: the test gives up on an init process that cannot report only
// after half a minute.
TEST(NeededCallsTest, EachIsNeeded) {
  std::map<pid_t, std::string> trials;
  for (const std::string_view name : policy::kNeededCalls) {
    const int32_t number = linux_sys::SyscallNumber(std::string(name));
    ASSERT_GE(number, 0) << name;
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::vector<std::string> argv = {name == "exit_group" ? "/workspace/missing" : "/workspace/exit"};
      // PID 1 waits for a signal only while the command still runs; it may reap a command that ends at once before
      // that.
      if (name == "rt_sigtimedwait") argv = {"/usr/bin/sleep", "1"};
      const CommandIo io = name == "ioctl" ? CommandIo::Terminal(-1, -1) : CommandIo::Capture();
      ::_exit(Trouble(SmallSpec({number}), argv, io).empty() ? 1 : 0);
    }
    trials[pid] = name;
  }
  for (const auto& [pid, name] : trials) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name << " can be denied and need not be listed";
  }
}

}  // namespace
}  // namespace caisson::sandbox
