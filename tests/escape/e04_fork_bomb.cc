// As many processes as there can be: one by one, threads, and a bomb that forks for ever.
//
// SAFETY: bare, a fixed number of processes for a moment. The bomb is never started bare.
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kMany = 200;
const std::vector<std::string> kLimit = {"--pids-limit", "64"};

Observation Processes() {
  std::vector<pid_t> children;
  int error = 0;
  while (children.size() < kMany && error == 0) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    if (child < 0) error = errno;
    if (child > 0) children.push_back(child);
  }
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return error == 0 ? Escaped(std::to_string(kMany) + " processes") : Blocked(error, std::to_string(children.size()));
}

// Bare threads, past the C library: each waits on its own stack until the process ends.
int Wait(void*) {
  for (;;) ::syscall(SYS_pause);
  return 0;
}

Observation Threads() {
  constexpr size_t kStack = 16 << 10;
  constexpr int kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  for (int count = 0; count < kMany; ++count) {
    void* stack = ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || ::clone(Wait, static_cast<char*>(stack) + kStack, kThread, nullptr) < 0)
      return Blocked(errno, std::to_string(count));
  }
  return Escaped(std::to_string(kMany) + " threads");
}

Observation Bomb() {
  if (IsControl()) return NotApplicable("never bare");
  std::puts("READY");
  std::fflush(stdout);
  for (;;) ::fork();
}

Observation Work() { return Blocked(0, "worked"); }

Judgement JudgeBomb(Host& host) {
  // What a start takes without it, on a machine that others use too.
  const int64_t start = NowMs();
  host.Run({.command = host.ProbeCommand("E04/work")});
  const int64_t quiet = NowMs() - start;

  Sandbox bomb =
      host.Start({.command = host.ProbeCommand("E04/bomb"), .flags = {"--pids-limit", "64", "--timeout", "15s"}});
  std::string ready;
  if (!bomb.process.ReadLine(&ready, kPatienceMs)) return Broken("the bomb did not start");
  const int64_t neighbour_start = NowMs();
  const Outcome neighbour = host.Run({.command = host.ProbeCommand("E04/work")});
  const int64_t busy = NowMs() - neighbour_start;
  const Outcome run = host.Finish(std::move(bomb));
  if (!run.result) return Broken("no result of the bomb: " + run.process.err);
  if (run.result->failure_class != "ProcessLimitViolation" ||
      run.result->Find("ProcessLimitViolation", "limit.pids") == nullptr) {
    return Broken("the bomb's failure class is " + run.result->failure_class);
  }
  if (!neighbour.Saw("E04/work")) return Broken("a neighbour could not run: " + neighbour.process.err);
  if (busy > quiet * 10 + 3000) return Broken("a neighbour had to wait " + std::to_string(busy) + " ms");
  return Held("the bomb has ended, and a neighbour ran beside it");
}

const Registration kRow(Row{
    .id = "E04",
    .title = "fork bomb: processes, threads, for ever",
    .severity = Severity::kPeerDenial,
    .walls = {"process limit"},
    .attempts = {{.name = "processes", .probe = Processes, .expect = {.errnos = {EAGAIN}}, .flags = kLimit},
                 {.name = "threads", .probe = Threads, .expect = {.errnos = {EAGAIN}}, .flags = kLimit},
                 {.name = "bomb", .probe = Bomb, .judge_only = true},
                 {.name = "work", .probe = Work, .judge_only = true}},
    .judge = JudgeBomb,
});

}  // namespace

}  // namespace caisson::escape
