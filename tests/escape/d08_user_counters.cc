// The kernel counts some things for each user and not for each process. A sandbox that uses up its user's share takes
// it from every other sandbox of the same user.
//
// SAFETY: bare, all of it happens under lowered limits of the programs' own, so that only they can run into them.
#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kSignals = 64;
constexpr int kProcesses = 40;
constexpr size_t kLockedBytes = 64 << 10;
constexpr int kPipeBytes = 1 << 20;

void Lower(__rlimit_resource_t resource, rlim_t value) {
  const struct rlimit limit { value, value };
  ::setrlimit(resource, &limit);
}

void LowerLimits() {
  Lower(RLIMIT_SIGPENDING, kSignals);
  Lower(RLIMIT_NPROC, kProcesses);
  Lower(RLIMIT_MEMLOCK, kLockedBytes);
}

// 0 or an errno, of one more of each.
int QueueSignal() {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGRTMIN + 1);
  ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  return ::sigqueue(::getpid(), SIGRTMIN + 1, {}) == 0 ? 0 : errno;
}

int Fork(std::vector<pid_t>* children) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  if (child < 0) return errno;
  children->push_back(child);
  return 0;
}

int LockMemory() {
  const int memory = ::shmget(IPC_PRIVATE, 16 << 10, IPC_CREAT | 0600);
  if (memory < 0) return errno;
  const int error = ::shmctl(memory, SHM_LOCK, nullptr) == 0 ? 0 : errno;
  // It stays while it is attached, and goes with the process.
  if (error == 0) ::shmat(memory, nullptr, 0);
  ::shmctl(memory, IPC_RMID, nullptr);
  return error;
}

int WidenPipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  if (::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes) >= 0) return 0;
  const int error = errno;
  ::close(ends[0]);
  ::close(ends[1]);
  return error;
}

bool Is(const char* kind) {
  const char* given = ::getenv("SELFTEST_KIND");
  return given != nullptr && ::strcmp(given, kind) == 0;
}

int One(std::vector<pid_t>* children) {
  if (Is("signals")) return QueueSignal();
  if (Is("processes")) return Fork(children);
  if (Is("locked memory")) return LockMemory();
  return WidenPipe();
}

void End(const std::vector<pid_t>& children) {
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
}

// Takes all that it can get and holds it.
Observation Exhaust() {
  LowerLimits();
  std::vector<pid_t> children;
  int taken = 0;
  while (taken < 512 && One(&children) == 0) ++taken;
  SayReadyAndWait();
  End(children);
  return Blocked(0, "took " + std::to_string(taken));
}

// Needs one.
Observation Need() {
  LowerLimits();
  std::vector<pid_t> children;
  const int error = One(&children);
  End(children);
  return error == 0 ? Blocked(0, "got one") : Escaped("nothing is left");
}

// One sandbox must not be able to take most of what the host's user has. The limit is the host's; bare, as many are to
// be had as are asked for.
Observation Inotify() {
  constexpr int kMany = 64;
  std::vector<UniqueFd> taken;
  while (taken.size() < kMany) {
    taken.emplace_back(::inotify_init1(IN_CLOEXEC));
    if (!taken.back()) return taken.size() > 4 ? Blocked(errno) : Partial("not even four can be had");
  }
  return Escaped("took " + std::to_string(kMany) + " inotify instances");
}

Judgement JudgeNeighbour(Host& host) {
  std::string shared, vacuous;
  for (const char* kind : {"signals", "processes", "locked memory", "pipe buffers"}) {
    const Environment env = {{"SELFTEST_KIND", kind}};
    const bool pipes = std::string(kind) == "pipe buffers";
    Neighbour a = Neighbour::InSandbox(host, "D08/exhaust", env);
    if (!a.ready()) return Broken("the neighbour did not start: " + a.End().process.err);
    const Outcome b = host.Run({.command = host.ProbeCommand("D08/need"), .env = env});
    const Outcome exhausted = a.End();
    const auto saw = b.Saw("D08/need");
    if (!saw || !b.result || !exhausted.result) return Broken("the probe said nothing: " + b.process.err);
    if (saw->seen == Seen::kBlocked) continue;
    // Pipe buffers are counted for the host's user only, and all sandboxes of an ordinary user share that user.
    if (pipes && b.result->host_uid == exhausted.result->host_uid) {
      shared = "; pipe buffers are the user's own";
      continue;
    }
    return Broken(std::string("a neighbour uses up all ") + kind);
  }
  return Held("the neighbour has its own" + shared);
}

// Bare, as an ordinary user: the second program finds nothing left. Root has no such limits.
Judgement Judge(Host& host) {
  for (const char* kind : {"signals", "processes"}) {
    const auto start = [&](const char* id, int input) {
      Command command;
      command.argv = host.ControlCommand(id);
      command.env = {{"SELFTEST_KIND", kind}};
      command.standard_input = input;
      command.before_exec = [] {
        return ::geteuid() != 0 || (::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0);
      };
      return Process::Start(command);
    };
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Vacuous("no pipe");
    UniqueFd read_end(ends[0]), write_end(ends[1]);
    Process first = start("D08/exhaust", read_end.get());
    std::string line;
    first.ReadLine(&line, kPatienceMs);
    Outcome second;
    second.process = start("D08/need", -1).Finish(kPatienceMs);
    write_end.Reset();
    first.Finish(kPatienceMs);
    const auto saw = second.Saw("D08/need");
    if (!saw || saw->seen != Seen::kEscaped) return Vacuous(std::string("bare programs do not share ") + kind);
  }
  return JudgeNeighbour(host);
}

const Registration kRow(Row{
    .id = "D08",
    .title = "using up what the kernel counts per user: signals, processes, inotify",
    .severity = Severity::kPeerDenial,
    .walls = {"user namespace", "own user ids", "inotify limit"},
    .attempts = {{.name = "inotify",
                  .probe = Inotify,
                  .control = {.place = Place::kOrdinaryUser},
                  .expect = {.errnos = {EMFILE}}},
                 {.name = "exhaust", .probe = Exhaust, .judge_only = true},
                 {.name = "need", .probe = Need, .judge_only = true}},
    .judge = Judge,
});

}  // namespace

}  // namespace caisson::escape
