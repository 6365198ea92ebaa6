// The supervisor is killed in the middle of a run: by the host's memory killer, by an operator. Nothing of the sandbox
// may go on without it, and its groups must go too.
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// A process with a child that ignores signals. Neither ends when its streams close; otherwise that alone would end
// them.
Observation Stay() {
  if (::fork() == 0) {
    ::setsid();
    for (int signal = 1; signal < 32; ++signal) ::signal(signal, SIG_IGN);
    for (;;) ::pause();
  }
  std::puts("READY");
  std::fflush(stdout);
  for (;;) ::pause();
}

// The processes that still run; zombies do not count.
std::vector<pid_t> Alive(const std::vector<pid_t>& processes) {
  std::vector<pid_t> alive;
  for (const pid_t pid : processes) {
    const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
    const size_t end = stat.rfind(')');
    if (end != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' && stat[end + 2] != 'X')
      alive.push_back(pid);
  }
  return alive;
}

// What is left of the processes below it one second after `pid` was killed.
std::vector<pid_t> LeftAfterKilling(pid_t pid, size_t* before) {
  const std::vector<pid_t> family = Host::Descendants(pid);
  *before = family.size();
  ::kill(pid, SIGKILL);
  const int64_t deadline = NowMs() + 3000;
  while (!Alive(family).empty() && NowMs() < deadline) ::usleep(5000);
  return Alive(family);
}

Judgement JudgeOrphans(Host& host) {
  size_t before = 0;
  {
    Neighbour bare = Neighbour::Bare(host, "E09/stay");
    if (!bare.ready()) return Vacuous("the probe does not run bare");
    const std::vector<pid_t> left = LeftAfterKilling(bare.process().pid(), &before);
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    bare.End();
    if (left.empty()) return Vacuous("a bare child dies with its parent");
  }
  Neighbour sandbox = Neighbour::InSandbox(host, "E09/stay");
  if (!sandbox.ready()) return Broken("the probe did not start: " + sandbox.End().process.err);
  const pid_t supervisor = Host::SupervisorOf(sandbox.process().pid());
  if (::kill(supervisor, 0) != 0 && errno == EPERM) {
    ::kill(sandbox.process().pid(), SIGKILL);
    sandbox.End();
    return Vacuous("the supervisor is the launcher's, and not this caller's to kill");
  }
  const std::vector<pid_t> left = LeftAfterKilling(supervisor, &before);
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
  const Outcome ended = sandbox.End();
  if (before < 3) return Broken("the sandbox's processes were not seen");
  if (!left.empty())
    return Broken(std::to_string(left.size()) + " of " + std::to_string(before) + " processes live on");
  if (ended.result && ended.result->status == "pass") return Broken("a run without a supervisor passed");
  // The next run must not fail because of leftovers.
  const Outcome next = host.Run({.command = {"/bin/true"}});
  if (!next.result || next.result->status != "pass") return Broken("the next run fails: " + next.process.err);
  return Held("all died with it, and the next run works");
}

const Registration kRow(Row{
    .id = "E09",
    .title = "the supervisor killed in the middle of a run",
    .severity = Severity::kLateral,
    .walls = {"parent-death signal", "pid namespace", "cleanup process"},
    .attempts = {{.name = "stay", .probe = Stay, .judge_only = true}},
    .judge = JudgeOrphans,
});

}  // namespace

}  // namespace caisson::escape
