// Taking more of the machine than others: priorities, real-time scheduling, locked memory, higher limits, and being the
// last that the kernel kills when memory runs out.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation Nice() {
  const long result = Call(SYS_setpriority, PRIO_PROCESS, 0, -20);
  return ::getpriority(PRIO_PROCESS, 0) == -20 ? Escaped("priority -20") : FromCall(result, "no effect");
}

// In a child, so that its gains end with it.
Observation RealTime() {
  const Ended ended = InChild([] {
    struct sched_param one {};
    one.sched_priority = 1;
    return static_cast<int>(-Call(SYS_sched_setscheduler, 0, SCHED_RR, &one));
  });
  return ended.exited && ended.code == 0 ? Escaped("SCHED_RR") : Blocked(ended.code);
}

Observation Deadline() {
  const Ended ended = InChild([] {
    struct {
      uint32_t size = 48, policy = 6;  // SCHED_DEADLINE
      uint64_t flags = 0;
      int32_t nice = 0;
      uint32_t priority = 0;
      uint64_t runtime = 1'000'000, deadline = 10'000'000, period = 10'000'000;
    } attributes;
    return static_cast<int>(-Call(SYS_sched_setattr, 0, &attributes, 0));
  });
  return ended.exited && ended.code == 0 ? Escaped("SCHED_DEADLINE") : Blocked(ended.code);
}

// Priority 0 is none of a real-time policy's: for callers that may not have one anyway.
Observation RealTimeAsked() {
  struct sched_param none {};
  return FromHarmlessCall(Call(SYS_sched_setscheduler, 0, SCHED_FIFO, &none), {EINVAL}, "SCHED_FIFO");
}

Observation IoPriority() {
  constexpr int kRealTime = 1 << 13;
  const Ended ended = InChild([] { return static_cast<int>(-Call(SYS_ioprio_set, 1, 0, kRealTime)); });
  return ended.exited && ended.code == 0 ? Escaped("real-time I/O") : Blocked(ended.code);
}

Observation IoPriorityAsked() { return FromHarmlessCall(Call(SYS_ioprio_set, 1, 0, 7 << 13), {EINVAL}, "ioprio_set"); }

Observation RaiseLimit() {
  const Ended ended = InChild([] {
    struct rlimit limit {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    // Lowered first, which every user may do, so that raising it again stays within the kernel's range.
    struct rlimit lower {
      32, 32
    };
    ::setrlimit(RLIMIT_NOFILE, &lower);
    return static_cast<int>(-Call(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr));
  });
  return ended.exited && ended.code == 0 ? Escaped("a higher hard limit") : Blocked(ended.code);
}

Observation NeverKilled() {
  int error = 0;
  return WriteText("/proc/self/oom_score_adj", "-1000", &error) ? Escaped("never killed") : Blocked(error);
}

// More than an ordinary user may, and little enough for any machine.
Observation LockMemory() {
  constexpr size_t kSize = 64U << 20;
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return NotApplicable("no memory");
  const long result = Call(SYS_mlock, memory, kSize);
  ::munmap(memory, kSize);
  return FromCall(result, "64 MiB locked");
}

const Registration kRow(Row{
    .id = "B10",
    .title = "priorities, real-time scheduling, locked memory, higher limits",
    .severity = Severity::kPeerDenial,
    .walls = {"capabilities", "seccomp", "read-only /proc", "resource limits"},
    .attempts = {{.name = "nice", .probe = Nice, .expect = {.errnos = {EPERM, EACCES}}},
                 {.name = "realtime", .probe = RealTime, .expect = {.errnos = {EPERM}}},
                 {.name = "realtime_asked",
                  .probe = RealTimeAsked,
                  .control = {.reaches_kernel = true},
                  .expect = {.errnos = {EPERM}}},
                 {.name = "deadline", .probe = Deadline, .expect = {.errnos = {EPERM, EINVAL}}},
                 {.name = "io", .probe = IoPriority, .expect = {.errnos = {ENOSYS, EPERM}}},
                 {.name = "io_asked",
                  .probe = IoPriorityAsked,
                  .control = {.reaches_kernel = true},
                  .expect = {.errnos = {ENOSYS, EPERM}}},
                 {.name = "limits", .probe = RaiseLimit, .expect = {.errnos = {EPERM}}},
                 {.name = "oom_score", .probe = NeverKilled, .expect = {.errnos = {EACCES, EROFS, EPERM}}},
                 {.name = "mlock", .probe = LockMemory, .expect = {.errnos = {ENOMEM, EPERM, EAGAIN}}}},
});

}  // namespace

}  // namespace caisson::escape
