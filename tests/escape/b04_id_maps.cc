// Writing the maps of a user namespace: a process that maps a user of its choice becomes that user.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// In a fresh user namespace if it can be had, else in the one it is in.
Observation Maps() {
  const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
  Call(SYS_unshare, CLONE_NEWUSER);
  Tally tally;
  const auto write = [&](const char* name, const std::string& text) {
    int error = 0;
    tally.Add(name, WriteText(std::string("/proc/self/") + name, text, &error) ? 0L : -error);
  };
  write("setgroups", "deny");
  write("uid_map", "0 " + uid + " 1");
  write("gid_map", "0 " + gid + " 1");
  return tally.Sum();
}

// Those of PID 1, from a process of the same user.
Observation SecondMap() {
  int error = 0;
  const std::string uid = std::to_string(::geteuid());  // as long as it has a name
  const std::string path = IsControl() ? "/proc/self/uid_map" : "/proc/1/uid_map";
  if (IsControl()) Call(SYS_unshare, CLONE_NEWUSER);
  return WriteText(path, "0 " + uid + " 1", &error) ? Escaped("mapped") : Blocked(error);
}

const Registration kRow(Row{
    .id = "B04",
    .title = "uid_map, gid_map, setgroups: of a new user namespace, of PID 1",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "read-only /proc", "user namespace"},
    .attempts = {{.name = "own",
                  .probe = Maps,
                  .expect = {.errnos = {EROFS, EACCES, EPERM},
                             .reports = {{"SyscallViolation", "syscall.ns", "unshare"},
                                         {"FilesystemWriteViolation", "fs.write", "openat"}}}},
                 {.name = "init",
                  .probe = SecondMap,
                  .expect = {.errnos = {EROFS, EACCES, EPERM},
                             .reports = {{"FilesystemWriteViolation", "fs.write", "openat"}}}}},
});

}  // namespace

}  // namespace caisson::escape
