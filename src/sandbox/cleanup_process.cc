#include "sandbox/cleanup_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "linux/raw_syscall.h"

namespace caisson::sandbox {

using linux_sys::RawSyscall;

namespace {

// ThreadSanitizer keeps hidden state per thread and does not support a second process in the same memory.
#if defined(__SANITIZE_THREAD__)
constexpr int kSharing = 0;
#else
constexpr int kSharing = CLONE_VM;
#endif

}  // namespace

// Runs: cleanup process, in the supervisor's memory.
__attribute__((no_sanitize("address", "thread", "undefined"))) int CleanupProcess::Keep(void* argument) {
  const Orders* orders = static_cast<const Orders*>(argument);
  RawSyscall(SYS_setsid);  // signals to the supervisor's process group or terminal must not reach us
  RawSyscall(SYS_prctl, PR_SET_NAME, reinterpret_cast<long>("caisson-cleanup"));
  // Closes the inherited descriptors. A copy of the caller's streams would make their readers wait for this process to
  // end; a copy of the pipe's write end would make this process itself wait for ever.
  const int low = orders->alive_fd < orders->slot_fd ? orders->alive_fd : orders->slot_fd;
  const int high = orders->alive_fd < orders->slot_fd ? orders->slot_fd : orders->alive_fd;
  RawSyscall(SYS_close_range, 0, low - 1, 0);
  if (high - low > 1) RawSyscall(SYS_close_range, low + 1, high - 1, 0);
  RawSyscall(SYS_close_range, high + 1, ~0U, 0);

  char nothing;
  while (RawSyscall(SYS_read, orders->alive_fd, reinterpret_cast<long>(&nothing), 1) == -EINTR) {
  }
  const long kill_fd =
      RawSyscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(orders->kill_path), O_WRONLY | O_CLOEXEC);
  if (kill_fd >= 0) RawSyscall(SYS_write, kill_fd, reinterpret_cast<long>("1"), 1);
  for (int group = 0; group < orders->groups; ++group) {
    // A group can be removed once its last process is gone, and only a successful rmdir shows when that is.
    for (int tries = 0; tries < 5000; ++tries) {
      if (RawSyscall(SYS_rmdir, reinterpret_cast<long>(orders->paths[group])) != -EBUSY) break;
      const struct timespec pause { 0, 1'000'000 };
      RawSyscall(SYS_nanosleep, reinterpret_cast<long>(&pause));
    }
  }
  RawSyscall(SYS_exit_group, 0);
  return 0;
}

Result<std::unique_ptr<CleanupProcess>> CleanupProcess::Start(const CgroupHost& host, const Slot& slot) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make the cleanup's pipe");
  UniqueFd read_end(ends[0]);
  std::unique_ptr<CleanupProcess> cleanup(new CleanupProcess);
  cleanup->alive_ = UniqueFd(ends[1]);
  Orders& orders = cleanup->orders_;
  orders.alive_fd = read_end.get();
  orders.slot_fd = slot.fd();
  const std::vector<std::string> paths = LimitGroup::Paths(host, slot.number());
  CAISSON_CHECK(paths.size() <= kMaxGroups);
  for (const std::string& path : paths) {
    const int length = std::snprintf(orders.paths[orders.groups++], sizeof(orders.paths[0]), "%s", path.c_str());
    if (length < 0 || static_cast<size_t>(length) >= sizeof(orders.paths[0]))
      return Error::Unsupported("cgroup path too long: " + path);
  }
  std::snprintf(orders.kill_path, sizeof(orders.kill_path), "%s/cgroup.kill", orders.paths[0]);

  // The cleanup process must never run one of our signal handlers in our memory, so all signals are blocked before it
  // starts.
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  cleanup->pid_ = ::clone(Keep, cleanup->stack_ + kStackBytes, kSharing | SIGCHLD, &orders);
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (cleanup->pid_ < 0) return Error::System(error, "start the cleanup");
  return cleanup;
}

CleanupProcess::~CleanupProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace caisson::sandbox
