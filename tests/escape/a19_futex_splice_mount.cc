// Three families of calls that exploits need: priority-inheriting futexes (CVE-2026-43499), moving pages without
// copying them (Dirty Pipe and its descendants), and everything that makes or changes mounts.
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kWaitRequeuePi = 11, kCmpRequeuePi = 12, kLockPi2 = 13;
constexpr long kFutexWake = 454, kFutexWait = 455, kFutexRequeue = 456, kOpenTreeAttr = 467;

// An address that is no futex's: refused, but only after the operation was accepted.
Observation FutexOperations() {
  alignas(4) unsigned word = 0;
  const unsigned* odd = reinterpret_cast<const unsigned*>(reinterpret_cast<const char*>(&word) + 1);
  Tally tally;
  for (const auto& [name, operation] :
       {std::pair{"WAIT_REQUEUE_PI", kWaitRequeuePi}, {"CMP_REQUEUE_PI", kCmpRequeuePi}}) {
    tally.Add(name, FromHarmlessCall(Call(SYS_futex, odd, operation, 1, nullptr, odd, 0), {EINVAL, EFAULT}, ""));
  }
  const long result = Call(SYS_futex, &word, kLockPi2, 0, nullptr, nullptr, 0);
  tally.Add("LOCK_PI2", word != 0 ? Escaped("") : FromCall(result, ""));
  return tally.Sum();
}

Attempt NewFutex(const char* name, long number) {
  return {.name = name,
          .probe =
              [=] {
                return FromHarmlessCall(Call(number, nullptr, 0, 0, 0, 0, 0), {EINVAL, EFAULT}, name);
              },
          .control = {.reaches_kernel = true},
          .expect = {.errnos = {ENOSYS}}};
}

struct Pipes {
  int a[2] = {-1, -1}, b[2] = {-1, -1};
  Pipes() {
    if (::pipe(a) != 0 || ::pipe(b) != 0) return;
  }
};

Observation MovePages() {
  const Pipes pipes;
  // A file that every user can read and the workload may not write.
  const int file = ::open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
  Tally tally;
  tally.Add("splice", Call(SYS_splice, file, nullptr, pipes.a[1], nullptr, 16, 0));
  if (::write(pipes.a[1], "x", 1) != 1) return NotApplicable("no pipe");
  tally.Add("tee", Call(SYS_tee, pipes.a[0], pipes.b[1], 1, 0));
  char byte = 'x';
  struct iovec page {
    &byte, 1
  };
  tally.Add("vmsplice", Call(SYS_vmsplice, pipes.b[1], &page, 1, 0));
  return tally.Sum();
}

Observation MountCalls() {
  Tally tally;
  const auto reach = [&](const char* name, long result, std::initializer_list<int> errors) {
    tally.Add(name, FromHarmlessCall(result, errors, ""));
  };
  reach("mount", Call(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr), {EFAULT, EINVAL});
  reach("umount2", Call(SYS_umount2, "/", 0x4000), {EINVAL});
  reach("chroot", Call(SYS_chroot, "/"), {});
  reach("fsopen", Call(SYS_fsopen, "tmpfs", 0), {});
  reach("fsconfig", Call(SYS_fsconfig, -1, 0, nullptr, nullptr, 0), {EINVAL, EBADF});
  reach("fsmount", Call(SYS_fsmount, -1, 0, 0), {EBADF});
  reach("fspick", Call(SYS_fspick, -1, "", FSPICK_EMPTY_PATH), {EBADF});
  reach("open_tree", Call(SYS_open_tree, AT_FDCWD, "/", 0x8001 /* recursive clone */), {});
  reach("move_mount", Call(SYS_move_mount, -1, "", -1, "", 0x40), {EBADF, EINVAL, ENOENT});
  reach("mount_setattr", Call(SYS_mount_setattr, -1, "", 0, nullptr, 0), {EINVAL});
  return tally.Sum();
}

Observation OpenTreeAttr() {
  return FromHarmlessCall(Call(kOpenTreeAttr, -1, "", 0x1000, nullptr, 1), {EINVAL, EBADF, E2BIG, EFAULT},
                          "open_tree_attr");
}

Observation PivotRoot() { return Survived(Call(SYS_pivot_root, "/", "/"), "pivot_root"); }

Report Mount(const char* syscall) { return {"SyscallViolation", "syscall.mount", syscall}; }

const Registration kRow(Row{
    .id = "A19",
    .title = "requeueing futexes, splice and its kin, the mount calls",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    .attempts = {{.name = "futex",
                  .probe = FutexOperations,
                  .control = {.reaches_kernel = true},
                  .expect = {.errnos = {ENOSYS}}},
                 NewFutex("futex_waitv", SYS_futex_waitv),
                 NewFutex("futex_wake", kFutexWake),
                 NewFutex("futex_wait", kFutexWait),
                 NewFutex("futex_requeue", kFutexRequeue),
                 {.name = "splice", .probe = MovePages, .expect = {.errnos = {ENOSYS}}},
                 {.name = "mount",
                  .probe = MountCalls,
                  .control = {.place = Place::kOwnNamespaces, .reaches_kernel = true},
                  .expect = {.errnos = {EPERM},
                             .reports = {Mount("mount"), Mount("umount2"), Mount("chroot"), Mount("fsopen"),
                                         Mount("fsconfig"), Mount("fsmount"), Mount("fspick"), Mount("open_tree"),
                                         Mount("move_mount"), Mount("mount_setattr")}}},
                 {.name = "open_tree_attr",
                  .probe = OpenTreeAttr,
                  .control = {.place = Place::kOwnNamespaces, .reaches_kernel = true},
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.mount"}}}},
                 {.name = "pivot_root",
                  .probe = PivotRoot,
                  .control = {.place = Place::kOwnNamespaces, .reaches_kernel = true},
                  .expect = {.death = Death::kRequired, .reports = {Mount("pivot_root")}}}},
});

}  // namespace

}  // namespace caisson::escape
