// Takes more memory than the limit: by touching it, by having the kernel fill it, on the stack, locked.
//
// SAFETY: 160 MiB against a limit of 64 MiB: bare it is nothing to a host. It is held for a while, because without a
// cgroup the supervisor looks every few milliseconds.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kTaken = 160 * kMiB;
constexpr char kLimit[] = "64M";
constexpr int64_t kLimitBytes = int64_t{64} << 20;
constexpr useconds_t kHeld = 300'000;

Observation Hold(const char* how) {
  ::usleep(kHeld);
  return Escaped(std::string("held 160 MiB ") + how);
}

Observation Touch() {
  for (size_t taken = 0; taken < kTaken; taken += kMiB) {
    void* piece = std::malloc(kMiB);
    if (piece == nullptr) return Blocked(ENOMEM);
    std::memset(piece, 1, kMiB);
  }
  return Hold("touched");
}

Observation Populate() {
  void* all = ::mmap(nullptr, kTaken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return all == MAP_FAILED ? Blocked(errno) : Hold("filled by the kernel");
}

// Shared among processes that each look small.
Observation Shared() {
  void* all = ::mmap(nullptr, kTaken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return Blocked(errno);
  constexpr size_t kParts = 4, kPart = kTaken / kParts;
  int done[2];
  if (::pipe2(done, O_CLOEXEC) != 0) return NotApplicable("no pipe");
  std::vector<pid_t> children;
  for (size_t part = 0; part < kParts; ++part) {
    const pid_t child = ::fork();
    if (child > 0) children.push_back(child);
    if (child != 0) continue;
    char* mine = static_cast<char*>(all) + part * kPart;
    std::memset(mine, 1, kPart);
    (void)!::write(done[1], mine, 1);
    for (;;) ::pause();
  }
  char byte;
  for (size_t part = 0; part < children.size(); ++part) (void)!::read(done[0], &byte, 1);
  const Observation held = Hold("in four processes");
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return children.size() == kParts ? held : NotApplicable("no processes");
}

size_t Recurse(size_t left) {
  volatile char frame[65536];
  for (size_t i = 0; i < sizeof(frame); i += 4096) frame[i] = 1;
  if (left <= sizeof(frame)) {
    ::usleep(kHeld);
    return frame[0];
  }
  return Recurse(left - sizeof(frame)) + frame[4096];
}

// What the kernel leaves free below a stack is at least 128 MiB.
Observation Stack() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_STACK, &limit);
  limit.rlim_cur = kTaken;
  if (::setrlimit(RLIMIT_STACK, &limit) != 0) return NotApplicable("the stack cannot grow here");
  return Recurse(112 * kMiB) > 0 ? Escaped("112 MiB of stack") : NotApplicable("");
}

// Locked pages cannot be reclaimed. More than the sandbox grants and less than any host does.
Observation Lock() {
  void* all = ::mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return FromCall(Call(SYS_mlock, all, 4 * kMiB), "locked 4 MiB");
}

const ParkedSetup kKilled = {.death = Death::kRequired, .reports = {{"MemoryLimitViolation", "limit.mem"}}};
const std::vector<std::string> kFlags = {"--memory", kLimit};
// The stack limit lets it, so that the memory limit is what it meets.
const std::vector<std::string> kDeepFlags = {"--memory", kLimit, "--stack", "160M"};

// The proof is a counter of the kernel's, or a measurement above the limit; and no more was ever given out.
Judgement JudgeEvidence(Host& host) {
  if (const Outcome bare = host.RunControl("F01/touch"); !bare.Saw("F01/touch")) return Vacuous("the control failed");
  const Outcome run = host.Run({.command = host.ProbeCommand("F01/touch"), .flags = kFlags});
  const ReportedViolation* found = run.result ? run.result->Find("MemoryLimitViolation", "limit.mem") : nullptr;
  if (found == nullptr) return Broken("not reported");
  const auto number = [&](const char* key) {
    const auto entry = found->evidence.find(key);
    return entry == found->evidence.end() ? -1 : std::atoll(entry->second.c_str());
  };
  const auto usage = nlohmann::json::parse(run.result->text)["usage"];
  if (run.result->cgroup_driver == "none") {
    return number("measured_bytes") > kLimitBytes ? Held("measured above the limit")
                                                  : Broken("the evidence shows no measurement above the limit");
  }
  if (number("oom_kill_after") <= number("oom_kill_before")) return Broken("the evidence shows no kill by the kernel");
  if (usage.value("peak_memory_bytes", int64_t{0}) > kLimitBytes) return Broken("more than the limit was given out");
  return Held("counted by the kernel");
}

const Registration kRow(Row{
    .id = "F01",
    .title = "a memory bomb: touched, populated, shared, on the stack, locked",
    .severity = Severity::kHostDenial,
    .walls = {"memory limit", "resource limits"},
    .attempts = {{.name = "touch", .probe = Touch, .expect = kKilled, .flags = kFlags},
                 {.name = "populate", .probe = Populate, .expect = kKilled, .flags = kFlags},
                 {.name = "shared", .probe = Shared, .expect = kKilled, .flags = kFlags},
                 {.name = "stack", .probe = Stack, .expect = kKilled, .flags = kDeepFlags},
                 {.name = "lock", .probe = Lock, .expect = {.errnos = {ENOMEM, EPERM}}}},
    .judge = JudgeEvidence,
});

}  // namespace

}  // namespace caisson::escape
