#include "sandbox/init.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "sandbox/control.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

void Send(const SetupContext& context, const Report& report) {
  // If the supervisor is gone there is nobody to tell, and the parent-death signal is on its way.
  if (::write(context.control_fd, &report, sizeof(report)) != sizeof(report)) ::_exit(1);
}

[[noreturn]] void FailStep(const SetupContext& context, int step, int error) {
  Report report{};
  report.kind = Report::kStepFailed;
  report.step = step;
  report.error = error;
  Send(context, report);
  ::_exit(1);
}

// Runs the steps that `wanted` picks.
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

// Whether the interpreter in this program is what the command would execute.
bool IsServed(const SetupContext& context, uint32_t index) {
  if (context.interpreter == nullptr) return false;
  for (const std::string& path : context.exec_candidates[index]) {
    if (context.interpreter->Serves(path.c_str(), context.spec->commands[index])) return true;
    if (::access(path.c_str(), F_OK) == 0) return false;  // found first
  }
  return false;
}

// Runs: the workload's process, between fork and exec; where the interpreter serves, there is no exec.
[[noreturn]] void BecomeWorkload(const SetupContext& context, uint32_t index, bool served) {
  const Command& command = context.spec->commands[index];
  const auto fail = [&](int error) {
    Report report{};
    report.kind = Report::kExecFailed;
    report.error = error;
    Send(context, report);
    ::_exit(127);
  };
  if (!CAISSON_LEFT_OUT("session")) ::setsid();
  const bool terminal = context.terminal_slave_fd >= 0;
  int streams[3];
  if (terminal) {
    streams[0] = streams[1] = streams[2] = context.terminal_slave_fd;
    if (::ioctl(context.terminal_slave_fd, TIOCSCTTY, 0) != 0) fail(errno);
  } else {
    streams[0] = context.stdin_fds[index] >= 0 ? context.stdin_fds[index] : context.stdin_null_fd;
    streams[1] = context.stdout_fd;
    streams[2] = context.stderr_fd;
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(streams[i], i) < 0) fail(errno);
  }
  // SECURITY: nothing of ours survives exec, whatever was opened by whom (CVE-2024-21626).
  if (!CAISSON_LEFT_OUT("descriptors") && ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) fail(errno);
  if (::chdir(command.cwd.c_str()) != 0) fail(errno);
  // SECURITY: the workspace may hold a link that leads out by a descriptor. From outside the root the kernel's answer
  // does not begin with a slash.
  char where[PATH_MAX];
  if (::syscall(SYS_getcwd, where, sizeof(where)) < 0) fail(errno);
  if (where[0] != '/') fail(EACCES);

  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  if (served) {
    if (::close_range(3, ~0U, 0) != 0) fail(errno);
    context.interpreter->Become(command);
  }
  int error = ENOENT;
  for (const std::string& path : context.exec_candidates[index]) {
    ::execve(path.c_str(), const_cast<char**>(context.argv_pointers[index].data()),
             const_cast<char**>(context.env_pointers[index].data()));
    // As a shell does: keep looking past what is not there, but remember a program that exists and may not be run.
    if (errno != ENOENT && errno != ENOTDIR) {
      error = errno;
      if (errno != EACCES) break;
    }
  }
  fail(error);
  ::_exit(127);
}

// Reaps everything that has ended; returns true, with its status, when `main_pid` was among it.
bool ReapEnded(pid_t main_pid, int* main_status) {
  bool main_ended = false;
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == main_pid) {
      *main_status = status;
      main_ended = true;
    }
  }
  return main_ended;
}

void RunCommand(const SetupContext& context, const Order& order, const sigset_t& signals) {
  // Shares our memory until it executes, unless it never does, which saves copying the page tables; we wait meanwhile,
  // and it writes nothing but its own stack frames above ours.
  // NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  const bool served = IsServed(context, order.command);
  const pid_t main_pid = served ? ::fork() : ::vfork();
  if (main_pid == 0) BecomeWorkload(context, order.command, served);
  // NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  Report report{};
  if (main_pid < 0) {
    report.kind = Report::kExecFailed;
    report.error = errno;
    Send(context, report);
    ::_exit(1);
  }
  int status = 0;
  while (!ReapEnded(main_pid, &status)) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    // si_pid is 0 for a sender outside our pid namespace, that is, for the supervisor; the workload can signal its own
    // processes itself and gets no courier.
    if (signal > 0 && signal != SIGCHLD && info.si_pid == 0) ::kill(main_pid, signal);
  }
  report.kind = Report::kCommandEnded;
  report.wait_status = status;
  report.left_processes = ::kill(-1, 0) == 0 ? 1 : 0;
  uint32_t killed = 0;
  if (order.last == 0 || !CAISSON_LEFT_OUT("kill_before_collecting")) {
    // Before the report: whoever has that knows that nothing writes any more. kill(-1) from PID 1 reaches all of the
    // pid namespace under one lock: a process that is forking right now either is in the list or sees its pending
    // signal and fails to fork.
    ::kill(-1, SIGKILL);
    for (pid_t pid; (pid = ::waitpid(-1, nullptr, 0)) > 0 || errno == EINTR;) {
      if (pid > 0) ++killed;
    }
  }
  report.left_processes = std::max(report.left_processes, killed);
  Send(context, report);
}

// SECURITY: among the descriptors that set-up needed are directories of the host, as policy opened them. A link in the
// workspace to /proc/self/fd/N would lead there when it is named as working directory or program (CVE-2024-21626). From
// here on there is the control socket and what becomes the workload's streams.
void KeepOnlyStreams(const SetupContext& context) {
  if (CAISSON_LEFT_OUT("descriptors")) return;
  const auto needed = [&](int fd) {
    for (const int stream : context.stdin_fds) {
      if (fd == stream) return true;
    }
    return fd == context.control_fd || fd == context.stdin_null_fd || fd == context.stdout_fd ||
           fd == context.stderr_fd || fd == context.terminal_slave_fd;
  };
  int last = 2;
  for (const int stream : context.stdin_fds) last = std::max(last, stream);
  for (const int fd :
       {context.control_fd, context.stdin_null_fd, context.stdout_fd, context.stderr_fd, context.terminal_slave_fd}) {
    last = std::max(last, fd);
  }
  for (int fd = 3; fd < last; ++fd) {
    if (!needed(fd)) ::close(fd);
  }
  if (::close_range(static_cast<unsigned>(last) + 1, ~0U, 0) != 0) ::_exit(1);
}

// SECURITY: where the workload is forked from us and executes nothing, it has what we have in memory. That is its own
// request, and in it the places on the host of what is mounted, which are not its business.
void ForgetHostPaths(Spec& spec) {
  const auto forget = [](std::string& path) { ::explicit_bzero(path.data(), path.size()); };
  if (spec.workspace) forget(spec.workspace->source_path);
  for (Mount& mount : spec.mounts) forget(mount.source_path);
}

}  // namespace

void RunInit(SetupContext& context) {
  // SECURITY: the kernel keeps from PID 1 what it has no handler for, whoever in the sandbox sends it. A handler that
  // the supervisor's program had installed would be a hole in that; and the workload must not inherit an ignored
  // signal.
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
  ready.dns_fd = context.dns_fd;
  ready.terminal_fd = context.terminal_fd;
  Send(context, ready);

  for (bool first = true;; first = false) {
    Order order{};
    if (::read(context.control_fd, &order, sizeof(order)) != sizeof(order)) ::_exit(0);
    if (first) {
      // The supervisor has its copies. From here on nobody of our own user may look into this process: it is a fork of
      // the supervisor and has its memory.
      if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) ::_exit(1);
      KeepOnlyStreams(context);
    }
    RunCommand(context, order, signals);
    if (order.last != 0 && !CAISSON_LEFT_OUT("kill_before_collecting")) ::_exit(0);
  }
}

}  // namespace caisson::sandbox
