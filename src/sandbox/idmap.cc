#include "sandbox/idmap.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "linux/files.h"
#include "linux/syscalls.h"

namespace caisson::sandbox {

namespace {

// Makes a user namespace that maps `from` to `to`. A user namespace exists only as long as a process or a descriptor
// holds it, so this function starts a process just to be its first member.
Result<UniqueFd> MakeMapping(Owner from, Owner to) {
  struct clone_args args {};
  args.flags = CLONE_NEWUSER;
  args.exit_signal = SIGCHLD;
  const pid_t parent = ::getpid();
  const pid_t pid = linux_sys::Clone3(&args);
  if (pid < 0) return Error::System(errno, "make a user namespace for an id-mapped mount");
  if (pid == 0) {
    // This process must not outlive us, nor hold descriptors that other processes wait for to close.
    ::close_range(0, ~0U, 0);
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != parent) ::_exit(1);
    for (;;) ::pause();
  }
  const std::string process = "/proc/" + std::to_string(pid);
  const std::string uid_map = std::to_string(from.uid) + " " + std::to_string(to.uid) + " 1";
  const std::string gid_map = std::to_string(from.gid) + " " + std::to_string(to.gid) + " 1";
  Status uid_status = linux_sys::WriteSmallFile(AT_FDCWD, (process + "/uid_map").c_str(), uid_map);
  Status gid_status = linux_sys::WriteSmallFile(AT_FDCWD, (process + "/gid_map").c_str(), gid_map);
  Result<UniqueFd> mapping = linux_sys::Open(process + "/ns/user", O_RDONLY);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  if (!uid_status) return std::move(uid_status).error();
  if (!gid_status) return std::move(gid_status).error();
  return mapping;
}

}  // namespace

Result<UniqueFd> CloneWithOwner(int source, Owner owner, Owner shown_as) {
  UniqueFd tree(::open_tree(source, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE));
  if (!tree) return Error::System(errno, "clone a mount source");
  CAISSON_TRY(UniqueFd mapping, MakeMapping(owner, shown_as));
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_IDMAP;
  attr.userns_fd = static_cast<uint64_t>(mapping.get());
  // Not recursive: a file system mounted below may not support it, and its files then appear with the overflow user as
  // owner.
  if (::mount_setattr(tree.get(), "", AT_EMPTY_PATH, &attr, sizeof(attr)) != 0) {
    if (errno == EINVAL || errno == EPERM) {
      return Error::Unsupported(
          "this file system cannot be id-mapped by this kernel (tmpfs needs Linux 6.3); use ro or cow, or a directory "
          "on disk");
    }
    return Error::System(errno, "id-map a mount source");
  }
  return tree;
}

}  // namespace caisson::sandbox
