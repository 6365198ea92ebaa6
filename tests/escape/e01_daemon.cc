// A process that tries to outlive the run: forked twice, in its own session, ignoring every signal.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// The word in its arguments is how it is found on the host.
constexpr char kDaemon[] = R"(
import signal
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        null = os.open('/dev/null', os.O_RDWR)
        for fd in range(3): os.dup2(null, fd)
        os.execvp('sleep', ['sleep', '300.' + os.environ['SELFTEST_WORD']])
    os._exit(0)
os.wait()
os.close(writer)
os.read(reader, 1)  # closed in the daemon when it has become what it is
blocked(0, 'left a daemon')
)";

// Processes of the host with this argument.
std::vector<pid_t> Find(const std::string& argument) {
  std::vector<pid_t> found;
  for (const pid_t pid : Host::Descendants(::getpid())) {
    if (ReadText("/proc/" + std::to_string(pid) + "/cmdline").find(argument) != std::string::npos) found.push_back(pid);
  }
  return found;
}

Judgement JudgeDaemon(Host& host) {
  const std::string word = std::to_string(::getpid());
  const Environment env = {{"SELFTEST_WORD", word}};
  SawBare(host, "E01", env);
  const std::vector<pid_t> bare = Find("300." + word);
  for (const pid_t pid : bare) ::kill(pid, SIGKILL);
  if (bare.empty()) return Vacuous("a bare daemon does not outlive its parent here");
  const Outcome run = host.Run({.command = host.ProbeCommand("E01"), .env = env});
  if (!Find("300." + word).empty()) return Broken("the daemon outlived the run");
  const auto saw = run.Saw("E01");
  if (run.process.timed_out) return Broken("it was waited for");
  if (!saw || !run.result) return Broken("the probe did not run: " + run.process.err);
  if (!run.result->left_processes) return Broken("the result does not say that processes were left");
  return Held("killed with the run, and the result says so");
}

const Registration kRow(Row{
    .id = "E01",
    .title = "a daemon that ignores every signal and outlives the command",
    .severity = Severity::kLateral,
    .walls = {"pid namespace", "PID 1 killed at the end"},
    .attempts = {{.python = kDaemon, .judge_only = true}},
    .judge = JudgeDaemon,
});

}  // namespace

}  // namespace caisson::escape
