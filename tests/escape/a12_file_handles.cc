// A file handle names an inode of a whole file system, past every mount: with it a container opened the host's files by
// guessing that the root is inode 2.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

struct Handle {
  unsigned bytes = 8;
  int type = 1;                        // FILEID_INO32_GEN
  unsigned inode = 2, generation = 0;  // the root of ext4
  char room[112] = {};
};

Observation Name() {
  Handle handle;
  handle.bytes = 120;
  int mount = 0;
  return FromCall(Call(SYS_name_to_handle_at, AT_FDCWD, "/usr", &handle, &mount, 0), "a handle of /usr");
}

Observation Open() {
  Handle root;
  const int mount = ::open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const long fd = Call(SYS_open_by_handle_at, mount, &root, O_RDONLY);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return Survived(fd, "open_by_handle_at");
}

const Registration kRow(Row{
    .id = "A12",
    .title = "open_by_handle_at with a guessed inode, name_to_handle_at",
    .severity = Severity::kHostLeak,
    .walls = {"seccomp", "capabilities"},
    .attempts = {{.name = "name",
                  .probe = Name,
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.fs", "name_to_handle_at"}}}},
                 {.name = "open",
                  .probe = Open,
                  .control = {.reaches_kernel = true},
                  .expect = {.death = Death::kRequired,
                             .reports = {{"SyscallViolation", "syscall.fs", "open_by_handle_at"}}}}},
});

}  // namespace

}  // namespace caisson::escape
