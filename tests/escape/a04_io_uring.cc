// A ring does its work in the kernel, where no filter sees the system calls it stands for.
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation SetUp() {
  struct io_uring_params parameters {};
  const long ring = Call(SYS_io_uring_setup, 4, &parameters);
  if (ring >= 0) ::close(static_cast<int>(ring));
  return FromCall(ring, "made a ring");
}

// Without a ring there is only standard input to name; a kernel that knows the call says that it is none.
Observation Enter() {
  return FromHarmlessCall(Call(SYS_io_uring_enter, 0, 1, 0, 0, nullptr, 0), {EOPNOTSUPP, EBADF}, "io_uring_enter");
}

Observation Register() {
  return FromHarmlessCall(Call(SYS_io_uring_register, 0, 0, nullptr, 0), {EOPNOTSUPP, EBADF, EINVAL},
                          "io_uring_register");
}

const Registration kRow(Row{
    .id = "A04",
    .title = "io_uring: file and network calls behind the filter's back",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    // ENOSYS and not death: libuv probes for it in every Node program.
    .attempts =
        {{.name = "setup", .probe = SetUp, .expect = {.errnos = {ENOSYS}}},
         {.name = "enter", .probe = Enter, .control = {.reaches_kernel = true}, .expect = {.errnos = {ENOSYS}}},
         {.name = "register", .probe = Register, .control = {.reaches_kernel = true}, .expect = {.errnos = {ENOSYS}}}},
});

}  // namespace

}  // namespace caisson::escape
