// Seeing processes that are not its own: the host's, and those of another sandbox.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// Every number there can be, or as many as two seconds allow: kill tells "no such process" from "not yours".
Observation Guess() {
  const int most = std::max(std::atoi(ReadText("/proc/sys/kernel/pid_max").c_str()), 1 << 15);
  int found = 0, first = 0;
  const int64_t deadline = NowMs() + 2000;
  for (int pid = 2; pid < most; ++pid) {
    if (pid > 1 << 16 && pid % 4096 == 0 && NowMs() > deadline) break;
    if (pid == ::getpid()) continue;
    const bool there = ::kill(pid, 0) == 0 || errno != ESRCH;
    if (there && found++ == 0) first = pid;
  }
  if (found == 0) return Blocked(ESRCH, "no process but itself and PID 1");
  return Escaped(std::to_string(found) + " processes, first " + std::to_string(first));
}

// Without /proc: by group, session, priority, scheduler.
Observation Ask() {
  Tally tally;
  const auto sweep = [&](const char* name, const auto& ask) {
    for (int pid = 2; pid < 1 << 15; ++pid) {
      if (pid != ::getpid() && pid != ::getppid() && ask(pid)) return tally.Add(name, 0);
    }
    tally.Add(name, -ESRCH);
  };
  sweep("getpgid", [](int pid) { return Call(SYS_getpgid, pid) >= 0; });
  sweep("getsid", [](int pid) { return Call(SYS_getsid, pid) >= 0; });
  sweep("sched_getscheduler", [](int pid) { return Call(SYS_sched_getscheduler, pid) >= 0; });
  sweep("pidfd_open", [](int pid) {
    const long fd = Call(SYS_pidfd_open, pid, 0);
    if (fd >= 0) ::close(static_cast<int>(fd));
    return fd >= 0;
  });
  return tally.Sum();
}

constexpr char kList[] = R"(
own = {1, os.getpid()}
found = [name for name in os.listdir('/proc') if name.isdigit() and int(name) not in own]
if found: escaped(f'{len(found)} processes')
if not os.path.exists(f'/proc/{os.getpid()}'): not_applicable('no /proc')
blocked(errno.ESRCH, 'no process but itself and PID 1')
)";

Observation Stay() {
  SayReadyAndWait();
  return Blocked(0);
}

// The word is in the environment and in the arguments of the neighbour, and in those of no other process.
constexpr char kFind[] = R"(
word = os.environ['SELFTEST_WORD'][::-1].encode()
for entry in os.listdir('/proc'):
    for name in ('cmdline', 'environ'):
        try: text = pathlib.Path('/proc', entry, name).read_bytes()
        except OSError: continue
        if word in text: escaped(f'found {name} of {entry}')
blocked(errno.ESRCH, 'not seen')
)";

Judgement JudgeNeighbour(Host& host) {
  const std::string word = "neighbour-" + std::to_string(::getpid());
  const std::string reversed(word.rbegin(), word.rend());
  {
    Neighbour bare = Neighbour::Bare(host, "C08/stay", {{"SELFTEST_WORD", word}});
    const auto saw = SawBare(host, "C08/find", {{"SELFTEST_WORD", reversed}});
    bare.End();
    if (!saw || saw->seen != Seen::kEscaped) return Vacuous("bare processes do not see each other either");
  }
  Neighbour a = Neighbour::InSandbox(host, "C08/stay", {{"SELFTEST_WORD", word}});
  if (!a.ready()) return Broken("the neighbour did not start: " + a.End().process.err);
  const Outcome b = host.Run({.command = host.ProbeCommand("C08/find"), .env = {{"SELFTEST_WORD", reversed}}});
  a.End();
  const auto saw = b.Saw("C08/find");
  if (!saw) return Broken("the probe said nothing: " + b.process.err);
  return saw->seen == Seen::kBlocked ? Held("neighbours do not see each other") : Broken("neighbour: " + saw->detail);
}

const Registration kRow(Row{
    .id = "C08",
    .title = "seeing processes of the host and of another sandbox",
    .severity = Severity::kHostLeak,
    .walls = {"pid namespace", "own /proc"},
    .attempts = {{.name = "list", .python = kList, .expect = {.errnos = {ESRCH}}},
                 {.name = "guess", .probe = Guess, .expect = {.errnos = {ESRCH}}},
                 {.name = "ask", .probe = Ask, .expect = {.errnos = {ESRCH}}},
                 {.name = "stay", .probe = Stay, .judge_only = true},
                 {.name = "find", .python = kFind, .judge_only = true}},
    .judge = JudgeNeighbour,
});

}  // namespace

}  // namespace caisson::escape
