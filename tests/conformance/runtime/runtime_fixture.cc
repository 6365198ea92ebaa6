#include "conformance/runtime/runtime_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "policy/profile.h"
#include "runtime/engine/engine.h"
#include "runtime/kubernetes/kubernetes.h"
#include "runtime/microvm/microvm.h"
#include "runtime/native/launched.h"
#include "runtime/native/native.h"
#include "runtime/oci/gvisor.h"
#include "runtime/oci/oci.h"
#include "support/bare_container.h"

namespace caisson::runtime {

namespace {

// The table of the abilities that each runtime declares it lacks.
const std::map<std::string, std::set<Ability>> kLacking = {
    // The supervisor is the thread that calls Execute, and its child processes inherit the descriptors of all threads.
    {"native", {Ability::kManyThreads, Ability::kClockBesideSink}},
    {"launched", {}},
    {"parked", {}},
    {"zygote", {}},
    {"agent", {Ability::kManyThreads, Ability::kClockBesideSink}},
    {"oci", {Ability::kClockBesideSink}},
    {"container", {Ability::kClockBesideSink}},
    {"microvm", {Ability::kManyThreads, Ability::kClockBesideSink}},
    {"gvisor", {Ability::kClockBesideSink}},
    {"kubernetes", {Ability::kClockBesideSink}},
};

const std::map<std::string, std::vector<std::string>> kLauncherFlags = {
    {"launched", {}},
    {"parked", {"--park", "4"}},
    {"zygote", {"--park", "4", "--python", "json,re"}},
};

UniqueFd StartLauncher(const std::vector<std::string>& flags, pid_t& pid) {
  const char* binary = ::getenv("CAISSON_LAUNCHER_BIN");
  int ends[2];
  if (binary == nullptr || ::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return {};
  pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    std::vector<std::string> words = {binary, "--fd", std::to_string(ends[1])};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(binary, argv.data());
    ::_exit(99);
  }
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  return UniqueFd(ends[0]);
}

// Waits until a start of this kind is ready in its pool, so that the next start does not find the pool empty.
bool AwaitPool(Runtime& runtime, const std::string& start) {
  for (int tries = 0; tries < 3000; ++tries) {
    const Result<PoolsReport> report = runtime.Pools();
    if (!report) return false;
    for (const PoolReport& pool : report->pools) {
      if (pool.start == start && pool.ready > 0) return true;
    }
    ::usleep(10'000);
  }
  return false;
}

}  // namespace

const std::string& RuntimeTest::name() {
  static const std::string named = ::getenv("CAISSON_RUNTIME") != nullptr ? ::getenv("CAISSON_RUNTIME") : "native";
  return named;
}

bool RuntimeTest::Has(Ability ability) { return kLacking.at(name()).count(ability) == 0; }

void RuntimeTest::SetUp() {
  ASSERT_TRUE(kLacking.count(name()) == 1) << name() << " is no runtime that this suite knows";
  if (name() == "native") {
    runtime_ = native::MakeNativeRuntime();
    return;
  }
  if (name() == "agent") {
    const char* agent = ::getenv("CAISSON_AGENT_BIN");
    ASSERT_NE(agent, nullptr) << "CAISSON_AGENT_BIN must name the agent";
    runtime_ = support::MakeBareRuntime(agent);
    return;
  }
  if (name() == "microvm" && ::getenv("CAISSON_MICROVM_ALL") == nullptr)
    GTEST_SKIP() << "SKIP: takes many minutes in virtual machines; set CAISSON_MICROVM_ALL=1";
  if (name() == "oci" || name() == "gvisor" || name() == "container" || name() == "microvm") {
    const char* agent = ::getenv("CAISSON_AGENT_BIN");
    ASSERT_NE(agent, nullptr) << "CAISSON_AGENT_BIN must name the agent";
    runtime_ = name() == "oci"         ? oci::MakeOciRuntime(agent)
               : name() == "gvisor"    ? oci::MakeGvisorRuntime(agent)
               : name() == "container" ? engine::MakeEngineRuntime(agent)
                                       : microvm::MakeMicrovmRuntime(agent);
    const std::string required = "," + (name() == "container" ? std::string("docker") : name()) + ",";
    const std::string listed =
        std::string(",") + (::getenv("CAISSON_MUST_RUN") ? ::getenv("CAISSON_MUST_RUN") : "") + ",";
    const Result<StartedRun> run = runtime_->Start(Plan());
    if (run || run.error().kind != ErrorKind::kUnsupported || listed.find(required) != std::string::npos) return;
    GTEST_SKIP() << "SKIP: " << run.error().message;
    return;
  }
  if (name() == "kubernetes") {
    runtime_ = kubernetes::MakeKubernetesRuntime();
    return;
  }
  UniqueFd control = StartLauncher(kLauncherFlags.at(name()), launcher_);
  ASSERT_TRUE(control.valid()) << "CAISSON_LAUNCHER_BIN must name the launcher";
  runtime_ = native::MakeLaunchedRuntime(std::move(control));
}

void RuntimeTest::TearDown() {
  runtime_.reset();
  if (launcher_ <= 0) return;
  EXPECT_EQ(EndOfLauncher(), 0);
}

int RuntimeTest::EndOfLauncher() {
  int status = 0;
  EXPECT_EQ(::waitpid(launcher_, &status, 0), launcher_);
  launcher_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

policy::RunPlan RuntimeTest::Plan() {
  policy::RunPlan plan;
  plan.profile = *policy::FindBuiltIn("balanced");
  plan.limits = plan.profile.limits;
  plan.limits.memory_bytes = int64_t{128} << 20;
  plan.limits.output_bytes = 1 << 20;
  plan.limits.scratch_bytes = int64_t{16} << 20;
  if (name() == "zygote") plan.commands.emplace_back().argv = {"python3"};  // the command for which the run is prepared
  return plan;
}

StartedRun RuntimeTest::Start(policy::RunPlan plan) {
  const bool prepared = name() == "parked" || name() == "zygote";
  EXPECT_TRUE(!prepared || AwaitPool(*runtime_, name()));
  Result<StartedRun> run = runtime_->Start(std::move(plan));
  EXPECT_TRUE(run) << run.error().message;
  return run ? *std::move(run) : nullptr;
}

Command Shell(const std::string& script) { return {{"/bin/sh", "-c", script}, {}}; }

Command Python(const std::string& text) { return {{"python3", "-c", text}, {}}; }

ExecuteOptions Within(int64_t timeout_ms) {
  ExecuteOptions options;
  options.timeout_ms = timeout_ms;
  options.timeout_name = "command_timeout_ms";
  return options;
}

CommandOutcome Execute(runtime::Run& run, const Command& command, const CommandIo& io, const ExecuteOptions& options) {
  const Result<CommandOutcome> outcome = run.Execute(command, io, options);
  EXPECT_TRUE(outcome) << outcome.error().message;
  if (outcome) return *outcome;
  CommandOutcome none;
  none.exit_code = -1;
  return none;
}

Violation FindViolation(const CommandOutcome& outcome, ViolationClass violation_class) {
  for (const Violation& violation : outcome.violations) {
    if (violation.violation_class == violation_class) return violation;
  }
  ADD_FAILURE() << "no " << ClassName(violation_class) << " among " << outcome.violations.size()
                << "; standard error: " << outcome.stderr_stream.head;
  return {};
}

std::string UniqueMark() {
  static int count = 0;
  return std::to_string(100'000'000 + ::getpid()) + "." + std::to_string(++count);
}

int CountMarked(const std::string& mark) {
  int count = 0;
  DIR* stream = ::opendir("/proc");
  while (const dirent* entry = stream != nullptr ? ::readdir(stream) : nullptr) {
    std::ifstream file("/proc/" + std::string(entry->d_name) + "/cmdline");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find(mark) != std::string::npos) ++count;
  }
  if (stream != nullptr) ::closedir(stream);
  return count;
}

bool AwaitMarked(const std::string& mark, int count) {
  for (int tries = 0; tries < 2000; ++tries) {
    if (CountMarked(mark) == count) return true;
    ::usleep(10'000);
  }
  return false;
}

}  // namespace caisson::runtime
