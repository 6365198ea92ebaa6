// A comet: each process forks the next one and ends, so that a killer that walks a list of processes is always one
// behind.
//
// SAFETY: bare, it burns out after a second.
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// The name is how it is found on the host: it has no arguments of its own. The bare comet, which may still fly when the
// other one is judged, has another name.
constexpr char kName[] = "selftest-comet";
constexpr char kBareName[] = "bare-comet";

[[noreturn]] void Fly() {
  const int64_t until = NowMs() + (IsControl() ? 1000 : 60'000);
  ::prctl(PR_SET_NAME, IsControl() ? kBareName : kName);
  ::setsid();
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
  while (NowMs() < until) {
    if (::fork() != 0) ::_exit(0);
    ::usleep(5000);  // long enough to be seen, too short to be killed one by one
  }
  ::_exit(0);
}

Observation Comet() {
  if (::fork() == 0) Fly();
  ::usleep(100'000);
  return Blocked(0, "it flies");
}

Observation CometAndWait() {
  if (::fork() == 0) Fly();
  for (;;) ::pause();
}

// A zombie that the harness has not reaped yet does not count.
bool IsPartOfIt(pid_t pid, const char* name) {
  const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(')');
  return stat.find(name) != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' && stat[end + 2] != 'X';
}

// Repeated for a while, because it is easily missed.
bool IsFlying(const char* name, int64_t for_ms) {
  const int64_t until = NowMs() + for_ms;
  do {
    for (const pid_t pid : Host::Descendants(::getpid())) {
      if (IsPartOfIt(pid, name)) return true;
    }
  } while (NowMs() < until);
  return false;
}

Judgement JudgeComet(Host& host) {
  SawBare(host, "E05/comet");
  if (!IsFlying(kBareName, 900)) return Vacuous("a bare comet is not seen either");
  const Outcome left = host.Run({.command = host.ProbeCommand("E05/comet")});
  if (!left.Saw("E05/comet")) return Broken("the probe did not run: " + left.process.err);
  if (IsFlying(kName, 300)) return Broken("it flies on after the command's end");
  const Outcome killed = host.Run({.command = host.ProbeCommand("E05/wait"), .flags = {"--timeout", "1s"}});
  if (!killed.result || killed.result->failure_class != "TimeoutViolation")
    return Broken("with a time limit: " + (killed.result ? killed.result->failure_class : killed.process.err));
  if (IsFlying(kName, 300)) return Broken("it flies on after the time limit");
  return Held("gone with PID 1");
}

const Registration kRow(Row{
    .id = "E05",
    .title = "a comet: a new process every moment, none of which stays to be killed",
    .severity = Severity::kPeerDenial,
    .walls = {"pid namespace", "PID 1 killed at the end"},
    .attempts = {{.name = "comet", .probe = Comet, .judge_only = true},
                 {.name = "wait", .probe = CometAndWait, .judge_only = true}},
    .judge = JudgeComet,
});

}  // namespace

}  // namespace caisson::escape
