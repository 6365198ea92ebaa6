// Memory that no process maps, so that measuring processes misses it: memory files and System V segments.
//
// SAFETY: 160 MiB against a limit of 64 MiB, given back at the end; segments, which outlive their maker, are removed.
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/message.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kPieces = 10;
constexpr size_t kPiece = 16 * kMiB;
constexpr useconds_t kHeld = 300'000;

int WriteMemoryFile() {
  static const std::vector<char> block(kMiB, 'x');
  const int fd = static_cast<int>(Call(SYS_memfd_create, "held", 0));
  for (size_t written = 0; fd >= 0 && written < kPiece; written += kMiB) {
    if (::write(fd, block.data(), kMiB) != static_cast<ssize_t>(kMiB)) return -1;
  }
  return fd;
}

Observation MemoryFiles() {
  for (int i = 0; i < kPieces; ++i) {
    if (WriteMemoryFile() < 0) return Blocked(errno);
  }
  ::usleep(kHeld);
  return Escaped("160 MiB in memory files");
}

// A descriptor in transit belongs to no process: it is in a socket's queue.
Observation InFlight() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) return Blocked(errno);
  for (int i = 0; i < kPieces; ++i) {
    const int fd = WriteMemoryFile();
    if (fd < 0) return Blocked(errno);
    if (const long result = SendDescriptors(ends[0], {fd}); result != 0) return Blocked(static_cast<int>(-result));
    ::close(fd);
  }
  ::usleep(kHeld);
  return Escaped("160 MiB in memory files that only a socket holds");
}

Observation Segments() {
  std::vector<int> segments;
  Observation seen = Escaped("160 MiB in segments that nobody has attached");
  for (int i = 0; i < kPieces; ++i) {
    const int segment = ::shmget(IPC_PRIVATE, kPiece, IPC_CREAT | 0600);
    void* memory = segment < 0 ? nullptr : ::shmat(segment, nullptr, 0);
    if (memory == nullptr || memory == reinterpret_cast<void*>(-1)) {
      seen = Blocked(errno);
      break;
    }
    segments.push_back(segment);
    std::memset(memory, 1, kPiece);
    ::shmdt(memory);
  }
  if (seen.seen == Seen::kEscaped) ::usleep(kHeld);
  for (const int segment : segments) ::shmctl(segment, IPC_RMID, nullptr);
  return seen;
}

// Without a cgroup, descriptors in transit belong to no process that could be examined. The result then says that such
// memory is not counted, and an escape is the announced outcome. The other two are counted in every mode.
Judgement JudgeCounted(Host& host) {
  std::string held, announced;
  for (const char* attempt : {"F04/memory_files", "F04/segments", "F04/in_flight"}) {
    if (const auto bare = host.RunControl(attempt).Saw(attempt); !bare || bare->seen != Seen::kEscaped) continue;
    const Outcome run =
        host.Run({.command = host.ProbeCommand(attempt), .flags = {"--memory", "64M", "--scratch", "32M"}});
    if (!run.result) return Broken(std::string(attempt) + ": no result");
    if (const auto saw = run.Saw(attempt)) {
      if (std::string(attempt) != "F04/in_flight" || !run.result->Lacks("shared_memory"))
        return Broken(std::string(attempt) + ": " + saw->detail);
      announced = "; not those that only a socket holds, as the result says";
      continue;
    }
    if (run.result->Find("MemoryLimitViolation", "limit.mem") == nullptr)
      return Broken(std::string(attempt) + ": not reported");
    held += std::string(held.empty() ? "" : ", ") + (attempt + 4);
  }
  return held.empty() ? Vacuous("without a sandbox it does not work either") : Held("counted: " + held + announced);
}

const Registration kRow(Row{
    .id = "F04",
    .title = "memory that no process maps: memory files, segments",
    .severity = Severity::kHostDenial,
    .walls = {"memory limit"},
    .attempts = {{.name = "memory_files", .probe = MemoryFiles, .judge_only = true},
                 {.name = "in_flight", .probe = InFlight, .judge_only = true},
                 {.name = "segments", .probe = Segments, .judge_only = true}},
    .judge = JudgeCounted,
});

}  // namespace

}  // namespace caisson::escape
