#include "agent/workload.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace caisson::agent {

namespace {

struct Step {
  const char* name;
  int (*run)(sandbox::SetupContext&);
};

// Gives up root and every capability. The agent stays another user than the workload, for kernels that protect PID 1 by
// its user alone.
int GiveUpRoot(sandbox::SetupContext& context) {
  // EINVAL marks the end of the bounding set.
  for (int capability = 0; ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; ++capability) {
  }
  if (errno != EINVAL) return errno;
  context.may_drop_groups = true;
  if (const int error = sandbox::steps::BecomeInsideUser(context); error != 0) return error;
  return sandbox::steps::DropCapabilities(context);
}

// The steps of sandbox/setup.cc that need no privileges, in the same order. Everything else of that table is the work
// of the walls outside.
constexpr Step kSteps[] = {
    {"inside_user", GiveUpRoot},
    {"resource_limits", sandbox::steps::SetResourceLimits},
    {"no_new_privs", sandbox::steps::ForbidNewPrivileges},
    {"landlock_rules", sandbox::steps::ListPaths},
    {"landlock", sandbox::steps::RestrictPaths},
    {"seccomp", sandbox::steps::InstallFilter},
};
constexpr size_t kUserStep = 0;
constexpr size_t kFilterStep = std::size(kSteps) - 1;

struct Report {
  enum Kind : int32_t { kPrepared, kHasOwnTable, kStepFailed, kExecFailed };
  Kind kind;
  int32_t step;
  int32_t error;
  int32_t listener_fd;
};

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Everything that the new process needs, made before it exists.
struct Prepared {
  sandbox::SetupContext* context = nullptr;
  WorkloadWalls walls;
  bool terminal = false;
  int report_fd = -1;
  int streams[3] = {-1, -1, -1};
  const char* cwd = nullptr;
  std::vector<std::string> programs;  // the paths at which the program may be
  std::vector<char*> argv, env;
};

std::vector<std::string> FindPrograms(const sandbox::Command& command) {
  const std::string& program = command.argv[0];
  if (program.find('/') != std::string::npos) return {program};
  std::string_view rest = kDefaultPath;
  for (const std::string& variable : command.env) {
    if (variable.compare(0, 5, "PATH=") == 0) rest = std::string_view(variable).substr(5);
  }
  std::vector<std::string> programs;
  while (!rest.empty()) {
    const std::string_view directory = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), directory.size() + 1));
    if (!directory.empty() && directory.size() + program.size() + 2 <= PATH_MAX)
      programs.push_back(std::string(directory) + "/" + program);
  }
  return programs;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void Fail(const Prepared& prepared, Report::Kind kind, size_t step, int error) {
  const Report report{kind, static_cast<int32_t>(step), error, -1};
  (void)!::write(prepared.report_fd, &report, sizeof(report));
  ::_exit(127);
}

// SECURITY: no descriptor of ours survives exec (CVE-2024-21626). With the filter, this process shares the agent's
// table of descriptors until here, which is how the agent got the listener; from here on the table is its own.
int CloseOnExec(bool shares_table) {
  const unsigned flags = CLOSE_RANGE_CLOEXEC | (shares_table ? CLOSE_RANGE_UNSHARE : 0U);
  // Not ~0U: gVisor takes the numbers as signed.
  if (::syscall(SYS_close_range, 3U, unsigned{INT_MAX}, flags) == 0) return 0;
  if (errno != ENOSYS || shares_table) return errno;
  for (int fd = 3; fd < 4096; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // a kernel without close_range, such as gVisor's
  return 0;
}

// Runs: the workload's process.
[[noreturn]] void BecomeWorkload(const Prepared& prepared) {
  ::setsid();
  sandbox::SetupContext& context = *prepared.context;
  for (size_t i = 0; i < std::size(kSteps); ++i) {
    if ((i == kFilterStep && !prepared.walls.observe) || (i == kUserStep && !prepared.walls.commands_become_user))
      continue;
    if (const int error = kSteps[i].run(context); error != 0) Fail(prepared, Report::kStepFailed, i, error);
  }
  const Report ready{Report::kPrepared, 0, 0, prepared.walls.observe ? context.listener_fd : -1};
  char go = 0;
  if (::write(prepared.report_fd, &ready, sizeof(ready)) != sizeof(ready)) ::_exit(127);
  // Behind the filter only calls that no profile may deny (policy/needed_calls.h): recvmsg, not read.
  struct iovec part {
    &go, 1
  };
  struct msghdr message {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (::recvmsg(prepared.report_fd, &message, 0) != 1) ::_exit(127);

  if (const int error = CloseOnExec(prepared.walls.observe); error != 0)
    Fail(prepared, Report::kStepFailed, kFilterStep, error);
  const Report own{Report::kHasOwnTable, 0, 0, -1};
  if (::write(prepared.report_fd, &own, sizeof(own)) != sizeof(own)) ::_exit(127);
  const auto fail = [&](int error) { Fail(prepared, Report::kExecFailed, 0, error); };
  if (prepared.terminal && ::ioctl(prepared.streams[0], TIOCSCTTY, 0) != 0) fail(errno);
  for (int i = 0; i < 3; ++i) {
    if (::dup2(prepared.streams[i], i) < 0) fail(errno);
  }
  if (::chdir(prepared.cwd) != 0) fail(errno);
  // A path outside the root does not begin with a slash.
  char where[PATH_MAX];
  if (::syscall(SYS_getcwd, where, sizeof(where)) < 0) fail(errno);
  if (where[0] != '/') fail(EACCES);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int error = ENOENT;
  for (const std::string& program : prepared.programs) {
    ::execve(program.c_str(), prepared.argv.data(), prepared.env.data());
    // Like a shell: continues past missing files, but remembers a program that exists and may not be executed.
    if (errno == ENOENT || errno == ENOTDIR) continue;
    error = errno;
    if (errno != EACCES) break;
  }
  fail(error);
  ::_exit(127);
}

// A process that does not answer within this time is stuck in a call that the profile denies.
constexpr int kReportMs = 10'000;

// Waits for the next report; false when it is not of that kind.
bool TakeReport(const StartedWorkload& workload, Report::Kind kind, Report& report) {
  report = {};
  struct pollfd wait {
    workload.report.get(), POLLIN, 0
  };
  int ready;
  do {
    ready = ::poll(&wait, 1, kReportMs);
  } while (ready < 0 && errno == EINTR);
  return ready > 0 && ::recv(workload.report.get(), &report, sizeof(report), MSG_DONTWAIT) == sizeof(report) &&
         report.kind == kind;
}

// Ends the process that failed, so that nothing of it is left.
Error Failed(pid_t pid, const Report& report) {
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (report.kind != Report::kStepFailed || report.step < 0 || static_cast<size_t>(report.step) >= std::size(kSteps))
    return Error::System(ECHILD, "the process of the command ended before it was one");
  const Step& step = kSteps[report.step];
  Error error = Error::System(report.error, std::string("wall ") + step.name);
  if (step.run == sandbox::steps::InstallFilter && (report.error == EPERM || report.error == EINVAL))
    error.message += "; the container's own seccomp profile must allow seccomp(2) with NEW_LISTENER";
  return error;
}

}  // namespace

Result<StartedWorkload> StartWorkload(sandbox::SetupContext& context, const sandbox::Command& command,
                                      const sandbox::WorkloadStreams& streams, const WorkloadWalls& walls) {
  const bool observe = walls.observe;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::System(errno, "make a socket for the command's process");
  StartedWorkload workload;
  workload.report = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  const UniqueFd nothing(streams.input ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!streams.input && !nothing) return Error::System(errno, "open /dev/null");
  Prepared prepared;
  prepared.context = &context;
  prepared.walls = walls;
  prepared.terminal = streams.terminal;
  prepared.report_fd = theirs.get();
  prepared.streams[0] = streams.input ? streams.input.get() : nothing.get();
  prepared.streams[1] = streams.terminal ? streams.input.get() : streams.output.get();
  prepared.streams[2] = streams.terminal ? streams.input.get() : streams.error.get();
  prepared.cwd = command.cwd.c_str();
  prepared.programs = FindPrograms(command);
  prepared.argv = Pointers(command.argv);
  prepared.env = Pointers(command.env);

  const auto sharing = static_cast<unsigned long>(SIGCHLD | (observe ? CLONE_FILES : 0));
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, sharing, nullptr, nullptr, nullptr, nullptr));
  if (pid < 0) return Error::System(errno, "start the command's process");
  if (pid == 0) BecomeWorkload(prepared);
  Report report{};
  if (!TakeReport(workload, Report::kPrepared, report)) return Failed(pid, report);
  if (observe) {
    // The table is shared, so this is the filter's own descriptor.
    workload.listener = UniqueFd(report.listener_fd);
    context.listener_fd = -1;
  }
  const char go = 1;
  if (::send(workload.report.get(), &go, 1, MSG_NOSIGNAL) != 1) return Failed(pid, {});
  // Nothing that the process still needs may be closed here before it has a table of its own.
  if (!TakeReport(workload, Report::kHasOwnTable, report)) return Failed(pid, report);
  workload.pid = pid;
  return workload;
}

int TakeExecFailure(const StartedWorkload& workload) {
  Report report{};
  if (::recv(workload.report.get(), &report, sizeof(report), MSG_DONTWAIT) != sizeof(report)) return 0;
  return report.kind == Report::kExecFailed ? report.error : 0;
}

}  // namespace caisson::agent
