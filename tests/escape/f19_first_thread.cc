// A process whose first thread has ended: /proc shows no memory for it, and its other threads have all of it.
//
// SAFETY: 160 MiB against a limit of 64 MiB, given back at the end.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kTaken = size_t{160} << 20;

void* TakeMemory(void*) {
  ::usleep(100'000);  // until the first thread is gone
  void* memory = std::malloc(kTaken);
  if (memory != nullptr) std::memset(memory, 1, kTaken);
  ::usleep(500'000);
  const Observation seen = memory != nullptr ? Escaped("160 MiB in a process without a first thread") : Blocked(ENOMEM);
  std::puts(FormatLine("F19", seen).c_str());
  std::fflush(stdout);
  ::_exit(0);
}

Observation LeaveItToAnother() {
  pthread_t thread{};
  if (::pthread_create(&thread, nullptr, TakeMemory, nullptr) != 0) return NotApplicable("no thread");
  Call(SYS_exit, 0);
  return NotApplicable("it did not end");
}

const Registration kRow(Row{
    .id = "F19",
    .title = "memory of a process whose first thread has ended",
    .severity = Severity::kHostDenial,
    .walls = {"memory limit"},
    .attempts = {{.probe = LeaveItToAnother,
                  .expect = {.death = Death::kRequired, .reports = {{"MemoryLimitViolation", "limit.mem"}}},
                  .flags = {"--memory", "64M"}}},
});

}  // namespace

}  // namespace caisson::escape
