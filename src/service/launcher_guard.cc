#include "service/launcher_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"

namespace caisson::service {
namespace {

constexpr int kStartTimeoutMs = 10'000;
// If a launcher lived for less than this, the next start waits as long, so that a launcher that cannot start does not
// use up a CPU.
constexpr int kPauseMs = 500;

int OpenPidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

std::string BesideThisProgram(const char* name) {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  std::string self(path, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return self.substr(0, self.rfind('/') + 1) + name;
}

pid_t StartLauncher(const std::vector<char*>& argv) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::execv(argv[0], argv.data());
  std::fprintf(stderr, "caissond: cannot start %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

// Runs: the guard. Ends when the service closes the other end of `alive`.
[[noreturn]] void Guard(int alive, int restarts, const std::vector<char*>& argv) {
  ::signal(SIGTERM, SIG_IGN);  // a signal to the whole process group: the service decides when to end
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  for (bool first = true;; first = false) {
    if (!first && ::write(restarts, "r", 1) != 1) break;
    const int64_t started = MonotonicNanos();
    const pid_t launcher = StartLauncher(argv);
    const UniqueFd ended(launcher > 0 ? OpenPidfd(launcher) : -1);
    pollfd polls[] = {{alive, POLLIN, 0}, {ended.get(), POLLIN, 0}};
    while (::poll(polls, 2, -1) < 0 && errno == EINTR) {
    }
    if (launcher > 0) {
      if (polls[0].revents != 0) ::kill(launcher, SIGTERM);
      ::waitpid(launcher, nullptr, 0);
    }
    if (polls[0].revents != 0) break;
    const bool short_lived = MonotonicNanos() - started < int64_t{kPauseMs} * 1'000'000;
    if (short_lived && ::poll(polls, 1, kPauseMs) > 0) break;
  }
  ::_exit(0);
}

bool ListensOn(const std::string& path) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

bool LauncherGuard::Listens() const { return ListensOn(socket_); }

Result<LauncherGuard> LauncherGuard::Start(const std::string& socket, const std::vector<std::string>& arguments) {
  if (socket.size() >= sizeof(sockaddr_un::sun_path))
    return Error::Invalid(socket + ": too long for a socket; choose a shorter state_dir");
  std::string program = BesideThisProgram("caisson-launcher");
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  int alive[2], restarts[2];
  if (::pipe2(alive, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  LauncherGuard guard;
  guard.socket_ = socket;
  guard.alive_ = UniqueFd(alive[1]);
  const UniqueFd alive_read(alive[0]);
  if (::pipe2(restarts, O_CLOEXEC | O_NONBLOCK) != 0) return Error::System(errno, "make a pipe");
  guard.restarts_ = UniqueFd(restarts[0]);
  const UniqueFd restarts_write(restarts[1]);
  const pid_t service = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Error::System(errno, "fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != service) ::_exit(1);
    guard.alive_.Reset();
    guard.restarts_.Reset();
    Guard(alive_read.get(), restarts_write.get(), argv);
  }
  guard.process_ = UniqueFd(OpenPidfd(child));
  const int64_t deadline = MonotonicNanos() + int64_t{kStartTimeoutMs} * 1'000'000;
  while (!guard.Listens()) {
    if (MonotonicNanos() > deadline) return Error::System(ETIMEDOUT, "wait for " + program + " to listen on " + socket);
    pollfd gone{guard.process_.get(), POLLIN, 0};
    if (::poll(&gone, 1, 5) > 0) return Error::System(ECHILD, "start " + program);
  }
  return guard;
}

}  // namespace caisson::service
