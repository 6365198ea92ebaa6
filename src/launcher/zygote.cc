#include "launcher/zygote.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
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
constexpr int kControl = 3;  // where caisson-zygote.py expects it

// SECURITY: the interpreter's own files are mapped in every workload, and /proc/self/exe leads to the first of them.
// They are mapped from a read-only mount, so that even somebody with the right to write them could not.
void ShowSystemReadOnly() {
  if (::geteuid() != 0) return;  // and has no such right
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 ||
      ::mount("/usr", "/usr", nullptr, MS_BIND | MS_REC, nullptr) != 0 ||
      ::mount_setattr(AT_FDCWD, "/usr", AT_RECURSIVE, &attr, sizeof(attr)) != 0) {
    std::fprintf(stderr, "caisson-launcher: cannot show the interpreter read-only: %s\n", std::strerror(errno));
    ::_exit(1);
  }
}

// Runs: the child that becomes the interpreter.
[[noreturn]] void Execute(pid_t launcher, int control, const std::string& script, const std::string& modules) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != launcher) ::_exit(1);
  ShowSystemReadOnly();
  // SECURITY: the launcher's listener and its clients' connections are not the interpreter's.
  if (control != kControl ? ::dup2(control, kControl) < 0 : ::fcntl(kControl, F_SETFD, 0) != 0) ::_exit(1);
  if (::close_range(kControl + 1, ~0U, 0) != 0) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  // What a profile's environment says, as far as it matters to an interpreter at its start; a command whose own differs
  // is not served.
  const char* const environment[] = {"LANG=C.UTF-8", "PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1",
                                     "PYTHONNOUSERSITE=1", nullptr};
  // What is shown of a command line lies where the first one was; the last word makes room for others.
  const std::string room(4096, '-');
  const char* const arguments[] = {kInterpreter, script.c_str(), modules.c_str(), room.c_str(), nullptr};
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
  const std::string script = directory_ + "/caisson-zygote.py";
  const pid_t launcher = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) Execute(launcher, theirs.get(), script, modules_);
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

bool Zygote::Fork(UniqueFd leash) {
  if (!lives()) return false;
  return PassLeash(control_.get(), leash.get()).has_value();
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
