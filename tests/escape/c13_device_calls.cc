// Devices under other names, and requests that act on a whole file system or outlive the run.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation Devices() {
  Tally tally;
  for (const char* path : {"/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vsock", "/dev/vhost-vsock", "/dev/vhost-net",
                           "/dev/loop-control", "/dev/loop0", "/dev/mapper/control", "/dev/btrfs-control",
                           "/dev/autofs", "/dev/userfaultfd", "/dev/uinput", "/dev/snd/timer", "/dev/dri/card0",
                           "/dev/cuse", "/dev/ppp", "/dev/console", "/dev/ttyS0"}) {
    // Not opened in the control: an opened console may become a process's terminal.
    tally.Add(path, ::access(path, F_OK) == 0 ? 0 : -errno);
  }
  return tally.SumAny();
}

std::string MakeFile() {
  const std::string path = WritableDirectory() + "/flags";
  ::close(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  return path;
}

// The no-dump flag is harmless; immutable is the same request.
Observation Flags() {
  const std::string path = MakeFile();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int flags = 0;
  if (IsControl() && Call(SYS_ioctl, fd, FS_IOC_GETFLAGS, &flags) < 0)
    return NotApplicable("no flags on this file system");
  flags |= FS_NODUMP_FL;
  const long result = Call(SYS_ioctl, fd, FS_IOC_SETFLAGS, &flags);
  ::close(fd);
  ::unlink(path.c_str());
  return FromCall(result, "set a flag");
}

Observation ExtendedFlags() {
  const std::string path = MakeFile();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct fsxattr attributes {};
  if (IsControl() && Call(SYS_ioctl, fd, FS_IOC_FSGETXATTR, &attributes) < 0)
    return NotApplicable("no extended flags on this file system");
  const long result = Call(SYS_ioctl, fd, FS_IOC_FSSETXATTR, &attributes);
  ::close(fd);
  ::unlink(path.c_str());
  return FromCall(result, "set extended flags");
}

// On a separate tmpfs, which cannot be frozen: the kernel reports that after it has checked the caller's rights.
Observation Freeze() {
  if (IsControl() && ::mount("none", WritableDirectory().c_str(), "tmpfs", 0, nullptr) != 0)
    return NotApplicable("no tmpfs of its own");
  const int fd = ::open(WritableDirectory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  Tally tally;
  tally.Add("FIFREEZE", FromHarmlessCall(Call(SYS_ioctl, fd, FIFREEZE, 0), {EOPNOTSUPP}, ""));
  tally.Add("FITHAW", FromHarmlessCall(Call(SYS_ioctl, fd, FITHAW, 0), {EOPNOTSUPP, EINVAL}, ""));
  ::close(fd);
  return tally.Sum();
}

// Sharing blocks with a program of the host, so that writing here writes there. Only some file systems can.
Observation Clone() {
  const std::string path = MakeFile(), other = WritableDirectory() + "/other";
  if (IsControl()) ::close(::open(other.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const int from = ::open(IsControl() ? other.c_str() : "/usr/bin/env", O_RDONLY | O_CLOEXEC);
  const int to = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  return FromCall(Call(SYS_ioctl, to, FICLONE, from), "shares blocks");
}

ParkedSetup Denied() { return {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.fs", "ioctl"}}}; }

const Registration kRow(Row{
    .id = "C13",
    .title = "hidden devices; freezing a file system, immutable files, shared blocks",
    .severity = Severity::kEscape,
    .walls = {"own /dev", "seccomp", "capabilities"},
    .attempts = {{.name = "devices", .probe = Devices, .expect = {.errnos = {ENOENT}}},
                 {.name = "flags", .probe = Flags, .expect = Denied()},
                 {.name = "extended_flags", .probe = ExtendedFlags, .expect = Denied()},
                 {.name = "freeze",
                  .probe = Freeze,
                  .control = {.place = Place::kOwnNamespaces, .reaches_kernel = true},
                  .expect = Denied()},
                 {.name = "clone", .probe = Clone, .expect = {.errnos = {EXDEV, EOPNOTSUPP, EPERM, EACCES}}}},
});

}  // namespace

}  // namespace caisson::escape
