// inotify watches are counted for the user who made the sandbox's user namespace: a sandbox that takes all of them
// takes them from every editor, build and service manager of that user.
//
// SAFETY: bare, 1500 of at least 8192.
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kMany = 1500;

Observation Watch() {
  const std::string directory = WritableDirectory();
  const int watcher = ::inotify_init1(IN_CLOEXEC);
  if (watcher < 0) return NotApplicable("no inotify");
  int error = 0, taken = 0;
  for (; taken < kMany && error == 0; ++taken) {
    const std::string file = directory + "/" + std::to_string(taken);
    const int fd = ::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return NotApplicable("no files");
    ::close(fd);
    if (::inotify_add_watch(watcher, file.c_str(), IN_MODIFY) < 0) error = errno;
  }
  // A watch goes with its file, so that the files go last.
  for (int i = 0; i < kMany; ++i) ::unlink((directory + "/" + std::to_string(i)).c_str());
  if (error == 0) return Escaped("took 1500 watches");
  return taken > 256 ? Blocked(error, "after " + std::to_string(taken)) : Partial("not even 256 can be had");
}

const Registration kRow(Row{
    .id = "D09",
    .title = "using up the inotify watches of the host's user",
    .severity = Severity::kPeerDenial,
    .walls = {"user counters"},
    .attempts =
        {{.name = "watch", .probe = Watch, .control = {.place = Place::kOrdinaryUser}, .expect = {.errnos = {ENOSPC}}}},
});

}  // namespace

}  // namespace caisson::escape
