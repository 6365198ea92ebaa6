// Changes a container from outside, as root, by entering one of its namespaces for a moment.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "linux/files.h"
#include "linux/syscalls.h"

namespace caisson::runtime::witnessed {

// Calls `act` in a process that has entered a namespace of the container; `act` makes system calls only.
template <typename Act>
Status DoInside(pid_t pid, const char* kind, const char* wall, const Act& act) {
  CAISSON_TRY(const UniqueFd entered, linux_sys::Open("/proc/" + std::to_string(pid) + "/ns/" + kind, O_RDONLY));
  const pid_t child = ::fork();
  if (child < 0) return Error::System(errno, std::string("wall ") + wall);
  if (child == 0) ::_exit(::setns(entered.get(), 0) == 0 && act() ? 0 : 1);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) return Error::System(EPERM, std::string("wall ") + wall + ": cannot be set from outside");
  return {};
}

// Makes the workspace that the agent has written read-only, from outside: nothing inside has the right to change that
// again. No command has run yet, so /workspace is the mount that the runtime asked for.
inline Status SealWorkspace(pid_t pid) {
  return DoInside(pid, "mnt", "workspace", [] {
    struct mount_attr read_only {};
    read_only.attr_set = MOUNT_ATTR_RDONLY;
    return ::mount_setattr(AT_FDCWD, "/workspace", 0, &read_only, sizeof(read_only)) == 0;
  });
}

}  // namespace caisson::runtime::witnessed
