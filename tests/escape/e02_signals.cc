// Signals to other processes: to processes of the host by number, to PID 1, to all; and with a forged sender.
//
// SAFETY: bare, only a process of the harness is signalled. kill(-1) and kill(1) are tried only inside.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

pid_t Victim() {
  const char* pid = ::getenv("SELFTEST_VICTIM");
  return pid != nullptr ? std::atoi(pid) : 0;
}

// Signal 0 and SIGCONT, which it does not mind.
Observation Reach() {
  const pid_t victim = Victim();
  if (victim <= 1) return NotApplicable("no victim");
  Tally tally;
  tally.Add("kill", Call(SYS_kill, victim, SIGCONT));
  tally.Add("kill of its group", Call(SYS_kill, -victim, SIGCONT));
  tally.Add("tkill", Call(SYS_tkill, victim, SIGCONT));
  tally.Add("tgkill", Call(SYS_tgkill, victim, victim, SIGCONT));
  siginfo_t info{};
  info.si_signo = SIGCONT;
  info.si_code = SI_QUEUE;
  tally.Add("sigqueue", Call(SYS_rt_sigqueueinfo, victim, SIGCONT, &info));
  const long process = Call(SYS_pidfd_open, victim, 0);
  tally.Add("pidfd", process < 0 ? process : Call(SYS_pidfd_send_signal, process, SIGCONT, nullptr, 0));
  return tally.Sum();
}

// All processes at once. PID 1 must survive to report the exit code, which no other process does.
constexpr int kCode = 77;
Observation Rage() {
  if (IsControl()) return NotApplicable("never bare");
  for (int signal = 1; signal < 65; ++signal) {
    Call(SYS_kill, 1, signal);
    siginfo_t info{};
    info.si_signo = signal;
    info.si_code = SI_QUEUE;
    info.si_pid = 0;  // as the supervisor's would look
    if (signal != SIGTERM && signal != SIGINT && signal != SIGHUP && signal != SIGQUIT && signal != SIGUSR1 &&
        signal != SIGUSR2) {
      Call(SYS_rt_sigqueueinfo, 1, signal, &info);
    }
  }
  Call(SYS_kill, ::getppid(), SIGKILL);
  Call(SYS_kill, -1, SIGKILL);
  Call(SYS_kill, -1, SIGSTOP);
  ::_exit(kCode);
}

Observation Stay() {
  SayReadyAndWait();
  return Blocked(0);
}

Judgement JudgeVictim(Host& host) {
  Neighbour victim = Neighbour::Bare(host, "E02/stay");
  if (!victim.ready()) return Vacuous("no victim can be started");
  const Environment env = {{"SELFTEST_VICTIM", std::to_string(victim.process().pid())}};
  const auto bare = SawBare(host, "E02/reach", env);
  if (!bare || bare->seen != Seen::kEscaped) {
    victim.End();
    return Vacuous("bare it is not reached either: " + (bare ? bare->detail : ""));
  }
  const Outcome run = host.Run({.command = host.ProbeCommand("E02/reach"), .env = env});
  const Outcome rage = host.Run({.command = host.ProbeCommand("E02/rage"), .env = env});
  const bool alive = ::kill(victim.process().pid(), 0) == 0;
  victim.End();
  const auto inside = run.Saw("E02/reach");
  if (!inside) return Broken("the probe said nothing: " + run.process.err);
  if (inside->seen != Seen::kBlocked || inside->error != ESRCH) return Broken("reached: " + inside->detail);
  if (!alive) return Broken("the victim is dead");
  if (!rage.result) return Broken("no result after signals to all processes: " + rage.process.err);
  if (rage.result->exit_code != kCode || rage.result->signal != 0 || rage.result->status != "fail")
    return Broken("after signals to all processes the result is " + rage.result->status + " " +
                  std::to_string(rage.result->exit_code) + " " + rage.result->message);
  return Held("ESRCH, and PID 1 lives");
}

const Registration kRow(Row{
    .id = "E02",
    .title = "signals to the host, to PID 1, to all processes, with a forged sender",
    .severity = Severity::kEscape,
    .walls = {"pid namespace", "PID 1 has no handlers", "landlock"},
    .attempts = {{.name = "reach", .probe = Reach, .judge_only = true},
                 {.name = "rage", .probe = Rage, .judge_only = true},
                 {.name = "stay", .probe = Stay, .judge_only = true}},
    .judge = JudgeVictim,
});

}  // namespace

}  // namespace caisson::escape
