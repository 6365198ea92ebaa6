// Keeps the host's disks busy: by writing where there is a disk below, and by making the kernel write out the dirty
// pages of all other programs.
//
// SAFETY: the controls write 4 MiB and sync once.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr long kCachestat = 451;  // Linux 6.5
constexpr int kTurns = 6;

// Places where a write would reach a disk.
Observation WritableDisks() {
  Tally tally;
  for (const char* place : {"/scratch", "/tmp", "/dev/shm", "/var/tmp", "/workspace", "/usr", "/"}) {
    const std::string path = IsControl() ? WritableDirectory() : place;
    struct statfs info {};
    if (::statfs(path.c_str(), &info) != 0) {
      tally.Add(place, -errno);
      continue;
    }
    const bool in_memory = info.f_type == TMPFS_MAGIC;
    const bool writable = ::access(path.c_str(), W_OK) == 0;
    tally.Add(place, !in_memory && writable ? 0L : -long{EROFS});
  }
  return IsControl() ? tally.SumAny() : tally.Sum();
}

Observation SyncAll() {
  Call(SYS_sync);
  return Escaped("asked for everything to be written out");
}

// The file system below a file that may only be read.
Observation SyncThroughFile() {
  const int fd = ::open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
  return FromCall(Call(SYS_syncfs, fd), "asked for the file system of /usr to be written out");
}

struct Cached {
  uint64_t cache, dirty, writeback, evicted, recently_evicted;
};

// Pages of `fd` that wait to be written; -1 where the kernel does not say.
int64_t Dirty(int fd) {
  struct {
    uint64_t offset, length;
  } range{0, 0};
  Cached cached{};
  return Call(kCachestat, fd, &range, &cached, 0) == 0 ? static_cast<int64_t>(cached.dirty + cached.writeback) : -1;
}

// Unwritten bytes of another program.
bool MakeDirty(int fd) {
  const std::string block(size_t{4} << 20, 'x');
  return ::pwrite(fd, block.data(), block.size(), 0) == static_cast<ssize_t>(block.size());
}

Judgement JudgeSync(Host& host) {
  const UniqueFd file(::open((host.MakeDirectory() + "/theirs").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || !MakeDirty(file.get())) return Vacuous("nothing can be written here");
  if (Dirty(file.get()) < 0) return Vacuous("this kernel does not tell which pages wait to be written (Linux 6.5)");
  std::string held;
  for (const char* attempt : {"F11/sync", "F11/syncfs"}) {
    MakeDirty(file.get());
    const int64_t before = Dirty(file.get());
    host.RunControl(attempt);
    if (before <= 0 || Dirty(file.get()) >= before) continue;  // in memory, or another file system than /usr
    // The kernel writes them out by itself now and then, and when another program of this machine syncs. A call that is
    // let through does it every time.
    bool waits = false;
    for (int turn = 0; turn < kTurns && !waits; ++turn) {
      MakeDirty(file.get());
      const int64_t waiting = Dirty(file.get());
      const Outcome run = host.Run({.command = host.ProbeCommand(attempt)});
      if (!run.result) return Broken("no result: " + run.process.err);
      waits = Dirty(file.get()) >= waiting;
    }
    if (!waits) return Broken(std::string(attempt) + ": other people's files were written out");
    held += std::string(held.empty() ? "" : ", ") + (attempt + 4);
  }
  return held.empty() ? Vacuous("even bare nothing is written out") : Held("harmless: " + held);
}

const Registration kRow(Row{
    .id = "F11",
    .title = "keeping the host's disks busy: writes, sync, syncfs",
    .severity = Severity::kPeerDenial,
    .walls = {"file systems in memory", "seccomp"},
    .attempts = {{.name = "places", .probe = WritableDisks},
                 {.name = "sync", .probe = SyncAll, .judge_only = true},
                 {.name = "syncfs", .probe = SyncThroughFile, .judge_only = true}},
    .judge = JudgeSync,
});

}  // namespace

}  // namespace caisson::escape
