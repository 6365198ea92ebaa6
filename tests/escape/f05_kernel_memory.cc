// Memory that the kernel holds for a program and no process maps: full pipes and sockets, a hundred thousand empty
// pipes, watches, timers, descriptors in transit, message queues, and cached names of files that do not exist.
//
// SAFETY: at most 200 MiB, or a few thousand small objects. All of it ends with the process except the cached names,
// which the kernel drops when it needs the memory.
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/message.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kTaken = size_t{128} << 20;
constexpr int kMany = 5000;

void RaiseDescriptorLimit() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

size_t FillUp(int fd) {
  static const std::vector<char> block(65536, 'x');
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  size_t filled = 0;
  for (ssize_t size; (size = ::write(fd, block.data(), block.size())) > 0;) filled += static_cast<size_t>(size);
  return filled;
}

Observation Hold(const char* what) {
  ::usleep(300'000);
  return Escaped(std::string("128 MiB in ") + what);
}

Observation Sockets() {
  RaiseDescriptorLimit();
  for (size_t held = 0; held < kTaken;) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Blocked(errno);
    const int size = 1 << 20;
    for (const int end : ends) {
      ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
      held += FillUp(end);
    }
  }
  return Hold("sockets");
}

Observation Pipes() {
  RaiseDescriptorLimit();
  for (size_t held = 0; held < kTaken;) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Blocked(errno);
    if (::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < 0) return Blocked(errno, "of a pipe's size");
    held += FillUp(ends[1]);
  }
  return Hold("pipes");
}

// `take` in each of `count` children, which hold what they took until all have it: no process's table has room for it
// all. The value of `take` is 0 or an errno.
Observation InChildren(int count, int (*take)(), const char* what) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return NotApplicable("no pipe");
  std::vector<pid_t> children;
  int error = 0;
  while (static_cast<int>(children.size()) < count && error == 0) {
    const pid_t child = ::fork();
    if (child == 0) {
      RaiseDescriptorLimit();
      const int failed = take();
      (void)!::write(ends[1], &failed, sizeof(failed));
      for (;;) ::pause();
    }
    if (child < 0) error = errno;
    if (child > 0) children.push_back(child);
  }
  ::close(ends[1]);
  for (size_t i = 0; i < children.size() && error == 0; ++i) {
    if (::read(ends[0], &error, sizeof(error)) != sizeof(error)) error = EPIPE;  // killed on the way
  }
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return error == 0 ? Escaped(what) : Blocked(error);
}

int TakePipes() {
  for (int i = 0; i < 2000; ++i) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  }
  return 0;
}

// Every watch is some hundred bytes of the kernel's; with descriptors their number grows as a square.
int TakeWatches() {
  constexpr int kEach = 450;
  int watched[kEach];
  for (int& one : watched) {
    if ((one = ::eventfd(0, EFD_CLOEXEC)) < 0) return errno;
  }
  for (int i = 0; i < kEach; ++i) {
    const int watcher = ::epoll_create1(EPOLL_CLOEXEC);
    if (watcher < 0) return errno;
    for (const int one : watched) {
      struct epoll_event event {};
      if (::epoll_ctl(watcher, EPOLL_CTL_ADD, one, &event) != 0) return errno;
    }
  }
  return 0;
}

Observation ManyPipes() { return InChildren(50, TakePipes, "100,000 pipes"); }
Observation Watches() { return InChildren(2, TakeWatches, "400,000 watches"); }

Observation Inotify() {
  constexpr int kInstances = 64;
  for (int i = 0; i < kInstances; ++i) {
    if (::inotify_init1(IN_CLOEXEC) < 0) return Blocked(errno, "after " + std::to_string(i));
  }
  return Escaped("64 inotify instances");
}

Observation Timers() {
  struct sigevent quiet {};
  quiet.sigev_notify = SIGEV_SIGNAL;
  quiet.sigev_signo = SIGUSR1;
  for (int i = 0; i < kMany; ++i) {
    int timer = 0;
    if (const long result = Call(SYS_timer_create, CLOCK_MONOTONIC, &quiet, &timer); result < 0)
      return Blocked(static_cast<int>(-result), "after " + std::to_string(i));
  }
  return Escaped("5000 timers");
}

// In queues without a reader, where no process's table counts them.
Observation InFlight() {
  RaiseDescriptorLimit();
  constexpr int kAtOnce = 250;
  for (int sent = 0; sent < kMany; sent += kAtOnce) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) return Blocked(errno);
    if (const long result = SendDescriptors(ends[0], std::vector<int>(kAtOnce, ends[0])); result != 0)
      return Blocked(static_cast<int>(-result), "after " + std::to_string(sent));
  }
  return Escaped("5000 descriptors in flight");
}

// The kernel's default for all users is ten such queues. On Linux 6.1 their directory belongs to the creator of the
// namespace; root is unmapped inside, and root's sandboxes have none at all.
Observation Queues() {
  const struct rlimit more { 8U << 20, 8U << 20 };
  ::setrlimit(RLIMIT_MSGQUEUE, &more);
  struct mq_attr size {};
  size.mq_maxmsg = 10;
  size.mq_msgsize = 8192;
  for (int i = 0; i < 24; ++i) {
    const std::string name = "/caisson-selftest-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    const mqd_t queue = ::mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &size);
    if (queue < 0) return Blocked(errno, "after " + std::to_string(i));
    ::mq_unlink(name.c_str());
  }
  return Escaped("24 message queues");
}

// The kernel caches, for a directory, that a name does not exist.
Observation MissingNames() {
  constexpr int kNames = 250'000;
  char path[5 + 241] = "/usr/";
  std::memset(path + 5, 'x', sizeof(path) - 6);
  for (int i = 0; i < kNames; ++i) {
    const int length = std::snprintf(path + 5, 32, "%d-%d", ::getpid(), i);
    path[5 + length] = '-';
    if (::access(path, F_OK) == 0) return NotApplicable("there is such a name");
  }
  return Escaped("250,000 names that do not exist");
}

// The kernel's memory for small objects, in KiB.
long SlabKb() {
  const std::string text = ReadText("/proc/meminfo");
  const size_t line = text.find("Slab:");
  return line == std::string::npos ? 0 : std::atol(text.c_str() + line + 5);
}

// Without a cgroup, the supervisor counts sockets. For the others the result says that they are not counted, and then
// an escape is the announced outcome.
Judgement JudgeCounted(Host& host) {
  struct Kind {
    const char *attempt, *memory, *announced;
  };
  std::string held, announced;
  for (const auto& [attempt, memory, loss] :
       {Kind{"F05/sockets", "64M", nullptr}, Kind{"F05/pipes", "32M", "pipes"}, Kind{"F05/many_pipes", "64M", "pipes"},
        Kind{"F05/watches", "32M", "kernel_memory"}}) {
    if (const auto bare = host.RunControl(attempt).Saw(attempt); !bare || bare->seen != Seen::kEscaped) continue;
    const Outcome run = host.Run({.command = host.ProbeCommand(attempt), .flags = {"--memory", memory}});
    if (!run.result) return Broken(std::string(attempt) + ": no result");
    if (const auto saw = run.Saw(attempt)) {
      if (loss == nullptr || !run.result->Lacks(loss)) return Broken(std::string(attempt) + ": " + saw->detail);
      announced += std::string(announced.empty() ? "; not, as the result says: " : ", ") + (attempt + 4);
      continue;
    }
    if (run.result->Find("MemoryLimitViolation", "limit.mem") == nullptr)
      return Broken(std::string(attempt) + ": not reported");
    held += std::string(held.empty() ? "" : ", ") + (attempt + 4);
  }
  return held.empty() ? Vacuous("without a sandbox it does not work either") : Held("counted: " + held + announced);
}

// Cached names outlive the process, so the host is measured afterwards. Other users of the machine can only add to it:
// one quiet round of several is enough.
Judgement JudgeNames(Host& host) {
  constexpr char kAttempt[] = "F05/missing_names";
  constexpr long kFreeKb = 64 << 10;
  // The kernel constantly drops names to make room for others, which takes minutes on an emulated machine.
  constexpr int kTurnMs = 600'000;
  const long before = SlabKb();
  host.RunControl(kAttempt);
  if (SlabKb() - before < kFreeKb) return Vacuous("the host does not remember missing names");
  long grown = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const long start = SlabKb();
    const std::vector<std::string> flags = {"--memory", "32M", "--timeout", std::to_string(kTurnMs) + "ms"};
    const Outcome run = host.Run({.command = host.ProbeCommand(kAttempt), .flags = flags}, kTurnMs + kPatienceMs);
    grown = SlabKb() - start;
    if (!run.result || (!run.Saw(kAttempt) && run.result->failure_class != "MemoryLimitViolation"))
      return Broken("missing names: " + (run.result ? run.result->failure_class : "no result") + " " + run.process.err);
    if (grown < kFreeKb) return Held("");
    if (run.result->Lacks("kernel_memory")) return Vacuous("missing names are not counted without a cgroup");
  }
  return Broken("the host keeps " + std::to_string(grown >> 10) + " MiB of missing names");
}

Judgement JudgeKernelMemory(Host& host) {
  Judgement counted = JudgeCounted(host);
  if (counted.verdict != Verdict::kPass) return counted;
  const Judgement names = JudgeNames(host);
  if (names.verdict == Verdict::kFail) return names;
  counted.detail += names.verdict == Verdict::kPass ? ", missing_names" : "; " + names.detail;
  return counted;
}

const Registration kRow(Row{
    .id = "F05",
    .title = "the kernel's memory: sockets, pipes, watches, timers, descriptors, queues, names",
    .severity = Severity::kHostDenial,
    .walls = {"memory limit", "resource limits"},
    .attempts = {{.name = "sockets", .probe = Sockets, .judge_only = true},
                 {.name = "pipes", .probe = Pipes, .judge_only = true},
                 {.name = "many_pipes", .probe = ManyPipes, .judge_only = true},
                 {.name = "watches", .probe = Watches, .judge_only = true},
                 {.name = "missing_names", .probe = MissingNames, .judge_only = true},
                 {.name = "inotify", .probe = Inotify, .expect = {.errnos = {EMFILE}}},
                 {.name = "timers", .probe = Timers, .expect = {.errnos = {EAGAIN}}},
                 {.name = "in_flight", .probe = InFlight, .expect = {.errnos = {ETOOMANYREFS}}},
                 {.name = "queues", .probe = Queues, .expect = {.errnos = {EMFILE, EACCES}}}},
    .judge = JudgeKernelMemory,
});

}  // namespace

}  // namespace caisson::escape
