// Changing the tree: new file systems, a writable root, moving mounts, and the walk out of a chroot.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

dev_t DeviceOf(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_dev : 0;
}

std::string MakeMountPoint(const char* name) {
  std::string path = WritableDirectory() + "/" + name;
  ::mkdir(path.c_str(), 0755);
  return path;
}

Observation Tmpfs() {
  const std::string path = MakeMountPoint("tmpfs");
  const dev_t before = DeviceOf(path);
  const long result = Call(SYS_mount, "none", path.c_str(), "tmpfs", 0, nullptr);
  return DeviceOf(path) != before ? Escaped("mounted a tmpfs") : FromCall(result, "no effect");
}

Observation Bind() {
  const std::string path = MakeMountPoint("bind");
  const long result = Call(SYS_mount, "/usr", path.c_str(), nullptr, MS_BIND, nullptr);
  return ::access((path + "/bin").c_str(), F_OK) == 0 ? Escaped("bound /usr") : FromCall(result, "no effect");
}

// A mount of its own in the control; inside, the root.
Observation RemountWritable() {
  std::string path = "/";
  if (IsControl()) {
    path = MakeMountPoint("remount");
    Call(SYS_mount, "none", path.c_str(), "tmpfs", MS_RDONLY, nullptr);
  }
  const long result = Call(SYS_mount, nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr);
  const bool writable = ::access(path.c_str(), W_OK) == 0;
  return writable ? Escaped("made writable") : FromCall(result, "no effect");
}

Observation Overlay() {
  const std::string path = MakeMountPoint("overlay");
  return FromCall(Call(SYS_mount, "none", path.c_str(), "overlay", MS_RDONLY, "lowerdir=/usr/bin:/usr/lib"),
                  "mounted an overlay");
}

Observation Unmount() {
  const std::string path = IsControl() ? MakeMountPoint("unmount") : "/proc";
  if (IsControl()) Call(SYS_mount, "none", path.c_str(), "tmpfs", 0, nullptr);
  return FromCall(Call(SYS_umount2, path.c_str(), MNT_DETACH), "unmounted " + path);
}

// The classic: with a directory held open, chroot below it and walk up past the root.
Observation Chroot() {
  const std::string below = MakeMountPoint("jail");
  const int held = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const long result = Call(SYS_chroot, below.c_str());
  if (result < 0) return Blocked(static_cast<int>(-result));
  return ::fchdir(held) == 0 && ::access("usr", F_OK) == 0 ? Escaped("walked out of a chroot")
                                                           : Partial("chroot works");
}

Attempt Try(const char* name, Observation (*probe)(), const char* syscall) {
  return {.name = name,
          .probe = probe,
          .control = {.place = Place::kOwnNamespaces},
          .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.mount", syscall}}}};
}

const Registration kRow(Row{
    .id = "B06",
    .title = "mounting, remounting the root, unmounting, the walk out of a chroot",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "capabilities"},
    .attempts = {Try("tmpfs", Tmpfs, "mount"), Try("bind", Bind, "mount"), Try("remount", RemountWritable, "mount"),
                 Try("overlay", Overlay, "mount"), Try("unmount", Unmount, "umount2"), Try("chroot", Chroot, "chroot")},
});

}  // namespace

}  // namespace caisson::escape
