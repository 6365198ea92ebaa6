// Never ending: stopped, or stopping the process that waits for it.
#include <signal.h>
#include <unistd.h>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation StopSelf() {
  ::kill(::getpid(), SIGSTOP);
  return Blocked(0, "went on");
}

// A child stops its parent and its group, and stays.
Observation StopGroup() {
  const pid_t parent = ::getpid();
  if (::fork() == 0) {
    ::setpgid(0, 0);
    ::kill(parent, SIGSTOP);
    for (;;) ::pause();
  }
  for (;;) ::pause();
  return Blocked(0);
}

Observation StopByTerminal() {
  ::raise(SIGTTOU);
  ::raise(SIGTTIN);
  ::raise(SIGTSTP);
  ::kill(0, SIGSTOP);
  return Blocked(0, "went on");
}

// "T" in its status. The name before it may hold anything.
bool IsStopped(pid_t pid) {
  const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] == 'T';
}

Judgement JudgeStopped(Host& host) {
  for (const char* id : {"E03/self", "E03/group", "E03/terminal"}) {
    {
      Process bare = Process::Start({.argv = host.ControlCommand(id)});
      const int64_t deadline = NowMs() + 5000;
      while (!IsStopped(bare.pid()) && NowMs() < deadline) ::usleep(10'000);
      if (!IsStopped(bare.pid())) return Vacuous(std::string(id) + " does not stand still bare");
      for (const pid_t child : Host::Descendants(bare.pid())) ::kill(child, SIGKILL);
    }
    const Outcome run = host.Run({.command = host.ProbeCommand(id), .flags = {"--timeout", "1s"}});
    if (run.process.timed_out || !run.result) return Broken(std::string(id) + ": Caisson waits for it");
    if (run.result->failure_class != "TimeoutViolation")
      return Broken(std::string(id) + ": the failure class is " + run.result->failure_class);
  }
  return Held("ended by the time limit");
}

const Registration kRow(Row{
    .id = "E03",
    .title = "standing still: SIGSTOP to itself, its parent, its group",
    .severity = Severity::kSelfDenial,
    .walls = {"time limit"},
    .attempts = {{.name = "self", .probe = StopSelf, .judge_only = true},
                 {.name = "group", .probe = StopGroup, .judge_only = true},
                 {.name = "terminal", .probe = StopByTerminal, .judge_only = true}},
    .judge = JudgeStopped,
});

}  // namespace

}  // namespace caisson::escape
