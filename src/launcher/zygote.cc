#include "launcher/zygote.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "launcher/channel.h"

namespace caisson::launcher {

namespace {

constexpr char kInterpreter[] = "/usr/bin/python3";
constexpr int64_t kLongestPauseMs = 60'000;
// Descriptor numbers: Python starts caisson-zygote.py from kScript, and the script expects the other two.
constexpr int kControl = 3, kScript = 4, kModule = 5;
// SECURITY: every workload inherits the interpreter's memory, and its maps name every file that it has mapped. So the
// interpreter is given no path: the workload must not learn where Caisson is installed on the host.
constexpr char kStart[] = "exec(compile(open(4, 'rb').read(), '<caisson-zygote>', 'exec'))";

// SECURITY: the interpreter's own files are mapped in every workload, and /proc/self/exe leads to the first of them.
// They are mapped from a read-only mount, so that even a process with permission to write them cannot.
void ShowSystemReadOnly() {
  if (::geteuid() != 0) return;  // an ordinary user has no such permission
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 ||
      ::mount("/usr", "/usr", nullptr, MS_BIND | MS_REC, nullptr) != 0 ||
      ::mount_setattr(AT_FDCWD, "/usr", AT_RECURSIVE, &attr, sizeof(attr)) != 0) {
    std::fprintf(stderr, "caisson-launcher: cannot show the interpreter read-only: %s\n", std::strerror(errno));
    ::_exit(1);
  }
}

// Copies a file into memory that no process can change any more; -1 with errno.
int CopyToSealedMemory(const char* name, int file) {
  const int memory = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory < 0) return -1;
  ssize_t copied;
  while ((copied = ::sendfile(memory, file, nullptr, size_t{1} << 20)) > 0) {
  }
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  return copied == 0 && ::fcntl(memory, F_ADD_SEALS, kSeals) == 0 ? memory : -1;
}

// Runs: the child that becomes the interpreter.
[[noreturn]] void Execute(pid_t launcher, int control, const std::string& directory, const std::string& modules) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != launcher) ::_exit(1);
  ShowSystemReadOnly();
  const int script = ::open((directory + "/caisson-zygote.py").c_str(), O_RDONLY | O_CLOEXEC);
  const int module_file = ::open((directory + "/caisson_zygote.so").c_str(), O_RDONLY | O_CLOEXEC);
  const int module = module_file < 0 ? -1 : CopyToSealedMemory("caisson_zygote", module_file);
  if (script < 0 || module < 0) {
    std::fprintf(stderr, "caisson-launcher: cannot read the interpreter's part in %s: %s\n", directory.c_str(),
                 std::strerror(errno));
    ::_exit(127);
  }
  // SECURITY: the interpreter must not inherit the launcher's listener and its clients' connections.
  constexpr int kAbove = kModule + 1;  // so that none of the three is overwritten before it is moved
  int moved[] = {control, script, module};
  for (int& fd : moved) {
    if ((fd = ::fcntl(fd, F_DUPFD, kAbove)) < 0) ::_exit(1);
  }
  if (::dup2(moved[0], kControl) < 0 || ::dup2(moved[1], kScript) < 0 || ::dup2(moved[2], kModule) < 0 ||
      ::close_range(kAbove, ~0U, 0) != 0) {
    ::_exit(1);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  // An executed interpreter starts with this stack (profiles/balanced.yaml); the zygote does not serve a command that
  // asks for another size. If the launcher's own limit is lower, the zygote serves no command.
  struct rlimit stack {};
  constexpr rlim_t kStackBytes = rlim_t{8} << 20;
  if (::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != kStackBytes && stack.rlim_max >= kStackBytes) {
    stack.rlim_cur = kStackBytes;
    (void)::setrlimit(RLIMIT_STACK, &stack);
  }
  // The variables of a profile's environment that affect an interpreter when it starts. The zygote does not serve a
  // command whose values differ.
  const char* const environment[] = {"LANG=C.UTF-8", "PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1",
                                     "PYTHONNOUSERSITE=1", nullptr};
  // The kernel shows as command line the memory of the original arguments; the last argument reserves room for a longer
  // one.
  const std::string room(4096, '-');
  const char* const arguments[] = {kInterpreter, "-c", kStart, modules.c_str(), room.c_str(), nullptr};
  ::execve(kInterpreter, const_cast<char**>(arguments), const_cast<char**>(environment));
  std::fprintf(stderr, "caisson-launcher: cannot start %s: %s\n", kInterpreter, std::strerror(errno));
  ::_exit(127);
}

}  // namespace

void Zygote::Start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  control_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t launcher = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) Execute(launcher, theirs.get(), directory_, modules_);
  if (pid_ < 0) control_.Reset();
}

int64_t Zygote::Turn(int64_t now_ms) {
  if (lives()) return -1;
  if (now_ms >= next_ms_) {
    next_ms_ = now_ms + 1000;
    started_ms_ = now_ms;
    Start();
  }
  return lives() ? -1 : next_ms_ - now_ms;
}

bool Zygote::Fork(UniqueFd control_socket) {
  if (!lives()) return false;
  return PassControlSocket(control_.get(), control_socket.get()).has_value();
}

bool Zygote::OnEnded(pid_t pid, int64_t now_ms) {
  if (pid != pid_) return false;
  pid_ = -1;
  control_.Reset();
  failures_ = now_ms - started_ms_ > kLongestPauseMs ? 1 : std::min(failures_ + 1, 16);
  next_ms_ = now_ms + std::min(kLongestPauseMs, int64_t{10} << failures_);
  std::fprintf(stderr, "caisson-launcher: the interpreter %d ended; %llu so far\n", pid,
               static_cast<unsigned long long>(++died_));
  return true;
}

}  // namespace caisson::launcher
