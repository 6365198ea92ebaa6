#include "sandbox/workload_start.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// SECURITY: a program that is executed here belongs to the sandbox's user namespace, over which the supervisor has all
// power. A workload that is forked and executes nothing keeps our memory, which belongs to the host's user namespace:
// an ordinary user's supervisor may inspect it only as long as it is dumpable. So this function makes the workload
// dumpable and keeps it so: a later attempt to change that reports success and has no effect. Returns 0 or an errno.
int StayObservable() {
  if (::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return errno;
  // The base filter has already checked that the architecture is ours.
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),  // the low half, which prctl reads
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_DUMPABLE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program {
    static_cast<unsigned short>(std::size(filter)), filter
  };
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0 ? 0 : errno;
}

}  // namespace

void Send(const SetupContext& context, const Report& report) {
  // If this fails, the supervisor is gone: no process is left to report to, and the parent-death signal is on its way.
  if (::write(context.control_fd, &report, sizeof(report)) != sizeof(report)) ::_exit(1);
}

ExecCandidates::ExecCandidates(const ReceivedCommand& command) : program_(command.argv[0]) {
  if (std::strchr(program_, '/') != nullptr) return;
  rest_ = kDefaultPath;
  for (const char* const* variable = command.env; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, "PATH=", 5) == 0) rest_ = *variable + 5;
  }
}

const char* ExecCandidates::Next() {
  if (rest_ == nullptr) return std::exchange(program_, nullptr);
  while (*rest_ != '\0') {
    const size_t size = std::strcspn(rest_, ":");
    const char* const directory = rest_;
    rest_ += rest_[size] == ':' ? size + 1 : size;
    const size_t name_bytes = std::strlen(program_) + 1;
    if (size == 0 || size + 1 + name_bytes > sizeof(path_)) continue;
    std::memcpy(path_, directory, size);
    path_[size] = '/';
    std::memcpy(path_ + size + 1, program_, name_bytes);
    return path_;
  }
  return nullptr;
}

void BecomeWorkload(const SetupContext& context, const ReceivedCommand& command, const Command* served) {
  const auto fail = [&](int error) {
    Report report{};
    report.kind = Report::kExecFailed;
    report.command = command.live;
    report.error = error;
    Send(context, report);
    ::_exit(127);
  };
  if (!CAISSON_LEFT_OUT("session")) ::setsid();
  int streams[3] = {command.input >= 0 ? command.input : context.stdin_null_fd, command.output, command.error};
  if (command.terminal) {
    streams[1] = streams[2] = streams[0];
    if (::ioctl(streams[0], TIOCSCTTY, 0) != 0) fail(errno);
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(streams[i], i) < 0) fail(errno);
  }
  // SECURITY: no descriptor of ours survives exec, whichever code opened it (CVE-2024-21626).
  if (!CAISSON_LEFT_OUT("descriptors") && ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) fail(errno);
  if (::chdir(command.cwd) != 0) fail(errno);
  // SECURITY: the workspace may hold a link that leads out of the root through a descriptor. If it does, the path that
  // the kernel returns does not begin with a slash.
  char where[PATH_MAX];
  if (::syscall(SYS_getcwd, where, sizeof(where)) < 0) fail(errno);
  if (where[0] != '/') fail(EACCES);

  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  if (served != nullptr) {
    if (const int error = StayObservable(); error != 0) fail(error);
    if (::close_range(3, ~0U, 0) != 0) fail(errno);
    context.interpreter->Become(*served);
  }
  int error = ENOENT;
  ExecCandidates candidates(command);
  while (const char* path = candidates.Next()) {
    ::execve(path, const_cast<char**>(command.argv), const_cast<char**>(command.env));
    // Like a shell: continues past missing files, but remembers a program that exists and may not be executed.
    if (errno != ENOENT && errno != ENOTDIR) {
      error = errno;
      if (errno != EACCES) break;
    }
  }
  fail(error);
  ::_exit(127);
}

}  // namespace caisson::sandbox
