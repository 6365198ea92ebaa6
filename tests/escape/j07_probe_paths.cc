// The profile lists directories in which a refused write is a notice. Here are paths that look like one of them and
// lead elsewhere, and calls that name one of them and something else besides: all are violations.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

const char kCache[] = "/var/cache/fontconfig";

// In the control the same tree below a directory of its own.
std::string Root() {
  if (!IsControl()) return "";
  const std::string root = WritableDirectory();
  for (const char* directory : {"/usr", "/usr/bin", "/var", "/var/cache", kCache})
    ::mkdir((root + directory).c_str(), 0755);
  return root;
}

Observation Create(int directory, const std::string& path) {
  const int fd = ::openat(directory, path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Blocked(errno);
  ::close(fd);
  ::unlinkat(directory, path.c_str(), 0);
  return Escaped("made a file");
}

Observation Dots() { return Create(AT_FDCWD, Root() + kCache + "/../../../usr/bin/caisson-selftest-fresh"); }

Observation Sibling() {
  const std::string sibling = Root() + kCache + "-2";
  if (IsControl()) ::mkdir(sibling.c_str(), 0755);
  return Create(AT_FDCWD, sibling + "/fresh");
}

Observation Parent() { return Create(AT_FDCWD, Root() + "/var/cache/fresh"); }

// A link of the workload's own that bears the name.
Observation Link() {
  const std::string link = WritableDirectory() + "/fontconfig";
  if (::symlink((Root() + "/usr/bin").c_str(), link.c_str()) != 0) return NotApplicable("no link can be made");
  return Create(AT_FDCWD, link + "/fresh");
}

Observation RelativeToDirectory() {
  const int directory = ::open((Root() + "/usr/bin").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const Observation seen = Create(directory, "var-cache-fontconfig");
  ::close(directory);
  return seen;
}

// The first of its two paths is a probe's.
Observation Rename() {
  const std::string from = Root() + kCache + "/a", to = Root() + "/usr/bin/ls";
  if (IsControl()) ::close(::open(from.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (::rename(from.c_str(), to.c_str()) != 0) return Blocked(errno);
  return Escaped("replaced a program");
}

Observation RenameAway() {
  const std::string from = Root() + "/usr/bin/env", to = Root() + kCache + "/a";
  if (IsControl()) ::close(::open(from.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (::rename(from.c_str(), to.c_str()) != 0) return Blocked(errno);
  return Escaped("took a program away");
}

const ParkedSetup kReported = {.errnos = {EROFS, EACCES, ENOENT, EXDEV, EPERM},
                               .reports = {{"FilesystemWriteViolation", "fs.write"}}};

const Registration kRow(Row{
    .id = "J07",
    .title = "paths that look like a library's cache and lead elsewhere",
    .severity = Severity::kIntegrity,
    .walls = {"probes by exact rule"},
    .attempts = {{.name = "dots", .probe = Dots, .expect = kReported},
                 {.name = "sibling", .probe = Sibling, .expect = kReported},
                 {.name = "parent", .probe = Parent, .expect = kReported},
                 {.name = "link", .probe = Link, .expect = kReported},
                 {.name = "relative", .probe = RelativeToDirectory, .expect = kReported},
                 {.name = "rename", .probe = Rename, .expect = kReported},
                 {.name = "rename_away", .probe = RenameAway, .expect = kReported}},
});

}  // namespace

}  // namespace caisson::escape
