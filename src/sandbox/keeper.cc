#include "sandbox/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace caisson::sandbox {

namespace {

// Runs: keeper.
[[noreturn]] void Keep(const CgroupHost& host, const Slot& slot, int alive_fd) {
  ::setsid();  // a signal to the supervisor's process group or terminal is not for us
  ::prctl(PR_SET_NAME, "caisson-keeper", 0, 0, 0);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Holding the caller's streams would keep whoever reads them waiting for us.
  const int low = std::min(alive_fd, slot.fd());
  const int high = std::max(alive_fd, slot.fd());
  ::close_range(0, static_cast<unsigned>(low) - 1, 0);
  if (high - low > 1) ::close_range(static_cast<unsigned>(low) + 1, static_cast<unsigned>(high) - 1, 0);
  ::close_range(static_cast<unsigned>(high) + 1, ~0U, 0);

  // What runs that were killed together with their keepers left behind. On our own time: the supervisor does not wait.
  const std::string directory = Slot::DefaultDirectory();
  for (const int number : LimitGroup::ListSlots(host)) {
    if (number == slot.number()) continue;
    if (Result<Slot> stale = Slot::AcquireNumber(directory, number)) LimitGroup::Reclaim(host, number);
  }
  char nothing;
  while (::read(alive_fd, &nothing, 1) < 0 && errno == EINTR) {
  }
  LimitGroup::Reclaim(host, slot.number());
  ::_exit(0);
}

}  // namespace

Result<Keeper> Keeper::Start(const CgroupHost& host, const Slot& slot) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make the keeper's pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return Error::System(errno, "start the keeper");
  if (pid == 0) {
    write_end.Reset();
    Keep(host, slot, read_end.get());
  }
  return Keeper(pid, std::move(write_end));
}

void Keeper::Dismiss() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  alive_.Reset();
}

}  // namespace caisson::sandbox
