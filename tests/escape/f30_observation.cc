// Makes the supervisor work: a flood of observed calls, each with a path that is slow to resolve, under a limit of a
// tenth of a processor. Caisson's work for a program counts against that program's limit, and does not delay its time
// limit.
//
// SAFETY: two seconds of one processor, or some more on a busy machine, in the control only.
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int64_t kTimeoutMs = 2000;
// Twice what the limit allows cannot come from a burst at the start.
constexpr int64_t kTooMuchPercent = 20;
constexpr int64_t kTooLateMs = 300;
constexpr size_t kThreads = 4;

// Opens a file that does not exist, through links, until it is ended. The kernel itself is told to follow none, and so
// gives up at the first: the call costs the program next to nothing.
void* OpenWithoutEnd(void*) {
  struct open_how how {};
  how.flags = O_WRONLY | O_CREAT;
  how.mode = 0600;
  how.resolve = RESOLVE_NO_SYMLINKS;
  for (;;) Call(SYS_openat2, AT_FDCWD, "far/../far/new", &how, sizeof(how));
}

Observation Flood() {
  const std::string directory = WritableDirectory() + "/d";
  ::mkdir(directory.c_str(), 0755);
  std::string far;
  for (int i = 0; i < 400; ++i) far += "d/../";
  (void)!::symlink((far + "d").c_str(), (WritableDirectory() + "/far").c_str());
  if (::chdir(WritableDirectory().c_str()) != 0) return NotApplicable("no directory");
  for (size_t i = 0; i < kThreads; ++i) {
    pthread_t thread;
    if (::pthread_create(&thread, nullptr, OpenWithoutEnd, nullptr) != 0) return NotApplicable("no thread");
  }
  ::pause();
  return Escaped("it was not ended");
}

Judgement Judge(Host& host) {
  // On a busy machine the flood gets little of a processor in a short time; then it has longer.
  for (int64_t timeout_ms = kTimeoutMs;; timeout_ms *= 2) {
    const auto run = [&](const char* cpus) {
      return host.Run({.command = host.ProbeCommand("F30/flood"),
                       .flags = {"--cpus", cpus, "--timeout", std::to_string(timeout_ms) + "ms"}});
    };
    const int64_t too_much_ms = timeout_ms * kTooMuchPercent / 100;
    const Outcome control = run("2");
    if (!control.result || control.result->supervisor_cpu_ms < 0) return Broken("no result: " + control.process.err);
    if (control.result->supervisor_cpu_ms < too_much_ms) {
      if (timeout_ms < 4 * kTimeoutMs) continue;
      return Vacuous("the flood costs the supervisor only " + std::to_string(control.result->supervisor_cpu_ms) +
                     " ms");
    }
    const Outcome limited = run("0.1");
    if (!limited.result) return Broken("no result: " + limited.process.err);
    const std::string seen = std::to_string(limited.result->supervisor_cpu_ms) + " ms of the supervisor's against " +
                             std::to_string(control.result->supervisor_cpu_ms) + " ms without the limit, ended after " +
                             std::to_string(limited.result->duration_ms) + " ms";
    if (limited.result->failure_class != "TimeoutViolation") return Broken("not a timeout: " + seen);
    if (limited.result->supervisor_cpu_ms > too_much_ms) return Broken(seen);
    if (limited.result->duration_ms > timeout_ms + kTooLateMs) return Broken("late: " + seen);
    return Held(seen);
  }
}

const Registration kRow(Row{
    .id = "F30",
    .title = "calls that cost the supervisor more than the program",
    .severity = Severity::kHostDenial,
    .walls = {"cpu limit"},
    .attempts = {{.name = "flood", .probe = Flood, .judge_only = true}},
    .judge = Judge,
});

}  // namespace

}  // namespace caisson::escape
