#include "sandbox/init.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "sandbox/command_order.h"
#include "sandbox/control.h"
#include "sandbox/live_init.h"
#include "sandbox/mutation.h"
#include "sandbox/workload_start.h"

namespace caisson::sandbox {

namespace {

[[noreturn]] void FailStep(const SetupContext& context, int step, int error) {
  Report report{};
  report.kind = Report::kStepFailed;
  report.step = step;
  report.error = error;
  report.mount = context.mount_at_work;
  report.at_target = context.target_at_work ? 1 : 0;
  Send(context, report);
  ::_exit(1);
}

// Runs the steps that `wanted` selects.
template <typename Wanted>
void RunSteps(SetupContext& context, const Wanted& wanted) {
  const auto steps = SetupSteps();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!wanted(steps[i].when)) continue;
    int error = steps[i].run(context);
#ifdef CAISSON_TEST_HOOKS
    if (context.fail_step == static_cast<int>(i)) error = EIO;
#endif
    if (error != 0) FailStep(context, static_cast<int>(i), error);
  }
}

void RunSetup(SetupContext& context) {
  if (!context.ahead) return RunSteps(context, [](When) { return true; });
  const auto ahead = [&](When when) {
    return when == When::kAhead || (when == When::kAheadOfRoot && context.may_drop_groups);
  };
  RunSteps(context, ahead);
  Report waiting{};
  waiting.kind = Report::kAwaitsSpec;
  Send(context, waiting);
  RunSteps(context, [&](When when) { return !ahead(when); });
}

std::vector<std::string> Copy(const char* const* strings) {
  size_t count = 0;
  while (strings[count] != nullptr) ++count;
  return {strings, strings + count};
}

// Whether executing the command would start the interpreter that runs in this process; then sets `command` to what the
// interpreter must run. Allocates, which is safe: a PID 1 with an interpreter was created ahead, and nothing else has
// ever run in it.
bool IsServed(const SetupContext& context, const ReceivedCommand& received, Command& command) {
  if (context.interpreter == nullptr || !context.stack_fits_interpreter) return false;
  // The filter would refuse the denied calls of a profile to PID 1 and to the interpreter before the workload's first
  // line, and record them as the workload's. An executed program makes no calls but its own.
  if (!context.spec->denied_calls.empty()) return false;
  command = {Copy(received.argv), Copy(received.env), received.cwd};
  ExecCandidates candidates(received);
  while (const char* path = candidates.Next()) {
    if (context.interpreter->Serves(path, command)) return true;
    if (::access(path, F_OK) == 0) return false;  // another program comes first in the search path
  }
  return false;
}

void Wipe(Command& command) {
  for (auto* strings : {&command.argv, &command.env}) {
    for (std::string& string : *strings) ::explicit_bzero(string.data(), string.size());
  }
}

// Reaps every process that has ended and adds its CPU time to `cpu_us`; returns true, with its status, when `main_pid`
// was among them.
bool ReapEnded(pid_t main_pid, int* main_status, int64_t* cpu_us) {
  bool main_ended = false;
  int status = 0;
  struct rusage usage {};
  for (pid_t pid; (pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0;) {
    *cpu_us += CpuMicroseconds(usage);
    if (pid == main_pid) {
      *main_status = status;
      main_ended = true;
    }
  }
  return main_ended;
}

void RunCommand(const SetupContext& context, ReceivedCommand& command, const sigset_t& signals) {
  Command taken_up;
  const bool served = IsServed(context, command, taken_up);
  // A child that will execute a program shares our memory until then (vfork), which saves copying the page tables; we
  // wait meanwhile, and it writes nothing but its own stack frames above ours. A served child never executes, so it is
  // forked.
  // NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  const pid_t main_pid = served ? ::fork() : ::vfork();
  if (main_pid == 0) BecomeWorkload(context, command, served ? &taken_up : nullptr);
  // NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  CloseStreams(command);
  Wipe(taken_up);
  Report report{};
  if (main_pid < 0) {
    report.kind = Report::kExecFailed;
    report.error = errno;
    Send(context, report);
    ::_exit(1);
  }
  int status = 0;
  while (!ReapEnded(main_pid, &status, &report.cpu_us)) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    // si_pid is 0 for a sender outside our pid namespace, that is, for the supervisor. The workload can signal its own
    // processes itself, so PID 1 forwards no signal for it.
    if (signal > 0 && signal != SIGCHLD && info.si_pid == 0) ::kill(main_pid, signal);
  }
  report.kind = Report::kCommandEnded;
  report.wait_status = status;
  report.left_processes = ::kill(-1, 0) == 0 ? 1 : 0;
  uint32_t killed = 0;
  if (!command.last || !CAISSON_LEFT_OUT("kill_before_collecting")) {
    // Must precede the report: the supervisor takes the report to mean that no process writes any more. kill(-1) from
    // PID 1 reaches all of the pid namespace under one lock: a process that is forking right now either is in the list
    // or sees its pending signal and fails to fork.
    ::kill(-1, SIGKILL);
    struct rusage usage {};
    for (pid_t pid; (pid = ::wait4(-1, nullptr, 0, &usage)) > 0 || errno == EINTR;) {
      if (pid <= 0) continue;
      ++killed;
      report.cpu_us += CpuMicroseconds(usage);
    }
  }
  report.left_processes = std::max(report.left_processes, killed);
  Send(context, report);
}

// SECURITY: the descriptors that set-up needed include directories of the host, as policy opened them. A link in the
// workspace to /proc/self/fd/N would lead there when it is named as working directory or program (CVE-2024-21626). From
// here on only the control socket and the workload's future streams stay open.
void KeepOnlyStreams(const SetupContext& context, const ReceivedCommand& command) {
  if (CAISSON_LEFT_OUT("descriptors")) return;
  const int kept[] = {context.control_fd, context.stdin_null_fd, command.input, command.output, command.error};
  const int last = std::max(2, *std::max_element(std::begin(kept), std::end(kept)));
  for (int fd = 3; fd < last; ++fd) {
    if (std::find(std::begin(kept), std::end(kept), fd) == std::end(kept)) ::close(fd);
  }
  if (::close_range(static_cast<unsigned>(last) + 1, ~0U, 0) != 0) ::_exit(1);
}

// SECURITY: a workload that is forked from PID 1 and executes nothing can read PID 1's memory. That memory holds the
// workload's own request, which contains the host paths of its mounts; the workload must not learn them.
void ForgetHostPaths(Spec& spec) {
  const auto forget = [](std::string& path) { ::explicit_bzero(path.data(), path.size()); };
  if (spec.workspace) forget(spec.workspace->source_path);
  for (Mount& mount : spec.mounts) forget(mount.source_path);
}

}  // namespace

void RunInit(SetupContext& context) {
  // SECURITY: the kernel does not deliver to PID 1 a signal that PID 1 has no handler for, whichever process in the
  // sandbox sends it. A handler that the supervisor's program had installed would break that protection; and the
  // workload must not inherit an ignored signal.
  struct sigaction reset {};
  reset.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &reset, nullptr);
  RunSetup(context);
  ForgetHostPaths(context.late_spec);

  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT}) {
    ::sigaddset(&signals, signal);
  }
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);

  Report ready{};
  ready.kind = Report::kReady;
  ready.root_fd = context.root_fd;
  ready.scratch_fd = context.scratch_fd;
  ready.workspace_fd = context.workspace_fd;
  ready.proc_fd = context.proc_fd;
  ready.listener_fd = context.listener_fd;
  ready.dns_fd = context.dns.datagrams;
  ready.dns_listener_fd = context.dns.listener;
  ready.segments_fd = context.segments_fd;
  ready.diagnosis_fd = context.diagnosis_fd;
  Send(context, ready);

  for (bool first = true;; first = false) {
    ReceivedCommand command;
    if (!TakeCommand(context.control_fd, context.command_memory, command)) ::_exit(0);
    if (first) {
      // The supervisor has copied the descriptors. From here on no process of our own user may inspect this process: it
      // is a fork of the supervisor and has its memory.
      if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) ::_exit(1);
      KeepOnlyStreams(context, command);
    }
    if (command.live != 0) RunLive(context, command, signals);
    RunCommand(context, command, signals);
    if (command.last && !CAISSON_LEFT_OUT("kill_before_collecting")) ::_exit(0);
    WipeCommand(command);
  }
}

}  // namespace caisson::sandbox
