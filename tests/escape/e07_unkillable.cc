// Resisting termination: every signal blocked, waiting in the kernel for an event that never happens.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

void Defy() {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  for (int signal = 1; signal < 65; ++signal) ::signal(signal, SIG_IGN);
}

void Ready() {
  std::puts("READY");
  std::fflush(stdout);
}

Observation Deaf() {
  Defy();
  Ready();
  for (;;) ::pause();
}

Observation Busy() {
  Defy();
  Ready();
  for (;;) asm volatile("");
}

// Opening a pipe without a reader waits in the kernel.
Observation Fifo() {
  Defy();
  const std::string path = WritableDirectory() + "/fifo";
  ::mkfifo(path.c_str(), 0600);
  Ready();
  ::close(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return Blocked(0);
}

// The parent of a vfork cannot be interrupted before its child goes on.
Observation Vfork() {
  Defy();
  Ready();
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork): that is the point
  if (::vfork() == 0) {
    for (;;) ::pause();
  }
  return Blocked(0);
}

// True if it reported ready and SIGTERM did not end it.
bool DefiesBare(Host& host, const char* id) {
  Command command;
  command.argv = host.ControlCommand(id);
  command.env = {{"CAISSON_CONTROL_DIRECTORY", host.MakeDirectory()}};
  Process bare = Process::Start(command);
  std::string line;
  if (!bare.ReadLine(&line, kPatienceMs)) return false;
  ::usleep(20'000);
  bare.Signal(SIGTERM);
  ::usleep(100'000);
  const bool alive = ::kill(bare.pid(), 0) == 0 && !bare.ReadLine(&line, 0);
  for (const pid_t child : Host::Descendants(bare.pid())) ::kill(child, SIGKILL);
  return alive;
}

Judgement JudgeDefiant(Host& host) {
  for (const char* id : {"E07/deaf", "E07/busy", "E07/fifo", "E07/vfork"}) {
    if (!DefiesBare(host, id)) return Vacuous(std::string(id) + " ends bare");
    const Outcome run = host.Run({.command = host.ProbeCommand(id), .flags = {"--timeout", "1s"}});
    if (run.process.timed_out || !run.result) return Broken(std::string(id) + ": Caisson waits for it");
    if (run.result->failure_class != "TimeoutViolation")
      return Broken(std::string(id) + ": the failure class is " + run.result->failure_class);
  }
  // Cancelled by the caller: the workload gets the signal and a moment, then it is over.
  Sandbox sandbox = host.Start({.command = host.ProbeCommand("E07/deaf")});
  std::string line;
  if (!sandbox.process.ReadLine(&line, kPatienceMs)) return Broken("the probe did not start");
  sandbox.process.Signal(SIGTERM);
  const Outcome cancelled = host.Finish(std::move(sandbox));
  if (cancelled.process.timed_out) return Broken("SIGTERM to Caisson does not end it");
  if (cancelled.result && cancelled.result->status == "pass") return Broken("a cancelled run passed");
  return Held("ended by the time limit, and by the caller");
}

const Registration kRow(Row{
    .id = "E07",
    .title = "not wanting to end: all signals blocked, a FIFO, a vfork, a busy loop",
    .severity = Severity::kSelfDenial,
    .walls = {"time limit", "PID 1 killed at the end"},
    .attempts = {{.name = "deaf", .probe = Deaf, .judge_only = true},
                 {.name = "busy", .probe = Busy, .judge_only = true},
                 {.name = "fifo", .probe = Fifo, .judge_only = true},
                 {.name = "vfork", .probe = Vfork, .judge_only = true}},
    .judge = JudgeDefiant,
});

}  // namespace

}  // namespace caisson::escape
