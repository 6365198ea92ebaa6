// Locks, leases and notifications belong to inodes, and every process with the same inode notices them: a channel, and
// a way to block others. Nothing that can be written is shared; leases and whole-mount watches are refused.
//
// What is shown read-only to several sandboxes (/usr, a directory of the caller's) is the same inode for all, and can
// be locked and watched by all: SECURITY.md says so. Files given to `verify` are copied in and are not.
#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

std::string NameIn(const char* place) {
  const char* word = ::getenv("SELFTEST_WORD");
  return std::string(place) + "/" + (word != nullptr ? word : "");
}

constexpr const char* kPlaces[] = {"/tmp", "/dev/shm", "/var/tmp"};

// Everything that can be written under a known name, locked in all three ways.
Observation Lock() {
  UniqueFd held[std::size(kPlaces)];
  size_t count = 0;
  for (const char* place : kPlaces) {
    UniqueFd& fd = held[count++];
    fd.Reset(::open(NameIn(place).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    ::fchmod(fd.get(), 0666);
    struct flock range {};
    range.l_type = F_WRLCK;
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno != EWOULDBLOCK) return NotApplicable("no lock");
    if (::fcntl(fd.get(), F_OFD_SETLK, &range) != 0 && errno != EAGAIN) return NotApplicable("no range lock");
  }
  SayReadyAndWait();
  for (const char* place : kPlaces) ::unlink(NameIn(place).c_str());
  return Blocked(0);
}

Observation Feel() {
  Tally tally;
  for (const char* place : kPlaces) {
    const UniqueFd fd(::open(NameIn(place).c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) {
      tally.Add(place, -errno);
      continue;
    }
    struct flock range {};
    range.l_type = F_WRLCK;
    tally.Add(place, ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && ::fcntl(fd.get(), F_OFD_GETLK, &range) == 0 &&
                             range.l_type != F_UNLCK
                         ? 0
                         : -ENOENT);
  }
  return tally.Sum();
}

// A lease blocks every process that opens the file, so only its owner may have one. The control uses its own file.
Observation Lease() {
  std::string path = "/usr/bin/env";
  if (IsControl()) {
    path = WritableDirectory() + "/leased";
    ::close(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  }
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const long result = Call(SYS_fcntl, fd.get(), F_SETLEASE, F_RDLCK);
  if (result == 0) Call(SYS_fcntl, fd.get(), F_SETLEASE, F_UNLCK);
  return FromCall(result, "has a lease");
}

Observation Watch() {
  const long fd = Call(SYS_fanotify_init, FAN_CLOEXEC | FAN_REPORT_FID, O_RDONLY);
  if (fd >= 0) ::close(static_cast<int>(fd));
  return FromCall(fd, "can watch a file system");
}

Judgement JudgeNeighbour(Host& host) {
  const Environment env = {{"SELFTEST_WORD", "caisson-lock-" + std::to_string(::getpid())}};
  {
    Neighbour bare = Neighbour::Bare(host, "D05/lock", env);
    const auto saw = SawBare(host, "D05/feel", env);
    bare.End();
    if (!saw || saw->seen != Seen::kEscaped) return Vacuous("bare programs do not feel each other's locks");
  }
  Neighbour a = Neighbour::InSandbox(host, "D05/lock", env);
  if (!a.ready()) return Broken("the neighbour did not start: " + a.End().process.err);
  const Outcome b = host.Run({.command = host.ProbeCommand("D05/feel"), .env = env});
  const auto on_host = SawBare(host, "D05/feel", env);
  a.End();
  const auto saw = b.Saw("D05/feel");
  if (!saw || !on_host) return Broken("the probe said nothing: " + b.process.err);
  if (saw->seen != Seen::kBlocked) return Broken("neighbour: " + saw->detail);
  if (on_host->seen != Seen::kBlocked) return Broken("the host feels it: " + on_host->detail);
  return Held("no writable inode is shared");
}

const Registration kRow(Row{
    .id = "D05",
    .title = "locks, leases and watches on files that another sandbox has too",
    .severity = Severity::kLateral,
    .walls = {"own scratch", "user namespace", "seccomp"},
    .attempts = {{.name = "lease", .probe = Lease, .expect = {.errnos = {EACCES}}},
                 {.name = "fanotify", .probe = Watch, .expect = {.errnos = {EPERM}}},  // a notice: watchers ask for it
                 {.name = "lock", .probe = Lock, .judge_only = true},
                 {.name = "feel", .probe = Feel, .judge_only = true}},
    .judge = JudgeNeighbour,
});

}  // namespace

}  // namespace caisson::escape
