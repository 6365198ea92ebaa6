// Files that a call reaches without a text that names them: from a working directory deeper than a path can be long or
// one that is gone, by the working directory itself, through a link that a slash makes the kernel follow.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// Where nothing may be changed; in the control, a directory of its own.
std::string Forbidden() {
  if (!IsControl()) return "/usr";
  const std::string directory = WritableDirectory() + "/forbidden";
  ::mkdir(directory.c_str(), 0755);
  return directory;
}

long Result(long value) { return value < 0 ? -errno : value; }

Observation FromDeep() {
  const std::string forbidden = Forbidden();
  if (::chdir(WritableDirectory().c_str()) != 0) return NotApplicable("no directory");
  const std::string name(200, 'd');
  std::string up;
  for (int depth = 0; depth < 40; ++depth) {
    if (::mkdir(name.c_str(), 0755) != 0 || ::chdir(name.c_str()) != 0) return NotApplicable("no directory");
    up += "../";
  }
  // Up to the root from the writable directory as well.
  for (const char letter : WritableDirectory()) {
    if (letter == '/') up += "../";
  }
  return FromCall(Result(::open((up + forbidden.substr(1) + "/fresh").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)),
                  "made a file");
}

Observation FromGone() {
  const std::string forbidden = Forbidden();
  const std::string gone = WritableDirectory() + "/gone", link = WritableDirectory() + "/link";
  if (::mkdir(gone.c_str(), 0755) != 0 || ::chdir(gone.c_str()) != 0 || ::rmdir(gone.c_str()) != 0 ||
      ::symlink(forbidden.c_str(), link.c_str()) != 0) {
    return NotApplicable("no directory");
  }
  return FromCall(Result(::mkdir("../link/fresh", 0755)), "made a directory");
}

Observation WorkingDirectory() {
  if (::chdir(Forbidden().c_str()) != 0) return NotApplicable("no directory");
  return FromCall(Result(::utimensat(AT_FDCWD, "", nullptr, AT_EMPTY_PATH)), "changed the working directory's times");
}

Observation LinkWithSlash() {
  const std::string link = WritableDirectory() + "/link";
  if (::symlink(Forbidden().c_str(), link.c_str()) != 0) return NotApplicable("no link");
  return FromCall(Result(::lchown((link + "/").c_str(), ::getuid(), ::getgid())), "changed what a link names");
}

Observation LinkWithFlagAndSlash() {
  const std::string link = WritableDirectory() + "/link";
  if (::symlink(Forbidden().c_str(), link.c_str()) != 0) return NotApplicable("no link");
  return FromCall(Result(::utimensat(AT_FDCWD, (link + "/").c_str(), nullptr, AT_SYMLINK_NOFOLLOW)),
                  "changed what a link names");
}

Observation ThroughProc() {
  if (::chdir(Forbidden().c_str()) != 0) return NotApplicable("no directory");
  return FromCall(Result(::mkdir("/proc/self/cwd/fresh", 0755)), "made a directory");
}

// A read-only mount below a directory that can be written.
Observation BelowWritable() {
  const std::string shown = WritableDirectory() + "/shown";
  if (IsControl()) ::mkdir(shown.c_str(), 0755);
  return FromCall(Result(::mkdir((shown + "/fresh").c_str(), 0755)), "made a directory");
}

Attempt Unnamed(const char* name, Observation (*probe)(), const char* syscall) {
  return {.name = name,
          .probe = probe,
          .expect = {.errnos = {EROFS}, .reports = {{"FilesystemWriteViolation", "fs.write", syscall}}}};
}

const Registration kRow(Row{
    .id = "A24",
    .title = "files that are reached without a text that names them",
    .severity = Severity::kIntegrity,
    .walls = {"observer", "read-only mounts"},
    .attempts = {Unnamed("deep", FromDeep, "openat"),
                 Unnamed("gone", FromGone, "mkdir"),
                 Unnamed("working-directory", WorkingDirectory, "utimensat"),
                 Unnamed("slash", LinkWithSlash, "lchown"),
                 Unnamed("flag-and-slash", LinkWithFlagAndSlash, "utimensat"),
                 Unnamed("proc", ThroughProc, "mkdir"),
                 {.name = "below-writable",
                  .probe = BelowWritable,
                  .expect = {.errnos = {EROFS}, .reports = {{"FilesystemWriteViolation", "fs.write", "mkdir"}}},
                  .flags = {"-v", "/usr/share:/scratch/shown:ro"}}},
});

}  // namespace

}  // namespace caisson::escape
