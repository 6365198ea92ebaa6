// x32 numbers are 64-bit calls with bit 30 set, some of them with other meanings: filters that compare numbers miss
// them. Most kernels answer ENOSYS, so only the filter's answer, a kill, can be told from theirs.
#include <sys/syscall.h>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr long kX32 = 0x40000000;

Attempt Number(const char* name, long number) {
  return {.name = name,
          .probe = [=] { return Survived(Call(kX32 | number, 0, 0, 0, 0, 0, 0), name); },
          .control = {.reaches_kernel = true},
          .expect = {.death = Death::kRequired, .reports = {{"SyscallViolation", "syscall.arch"}}}};
}

const Registration kRow(Row{
    .id = "A02",
    .title = "x32 system calls: the number with bit 30 set",
    .severity = Severity::kEscape,
    .walls = {"seccomp: foreign architecture"},
    .attempts = {Number("read", SYS_read), Number("getpid", SYS_getpid), Number("ptrace", 521), Number("execve", 520),
                 Number("last", 547)},
});

}  // namespace

}  // namespace caisson::escape
