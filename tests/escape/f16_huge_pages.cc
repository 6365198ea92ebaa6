// Huge pages come out of a pool that the host set aside, and no memory limit counts them: a program that takes the last
// one takes it from the database or the virtual machine that needs it.
//
// SAFETY: attempts reserve nothing (…_NORESERVE), so that they work on a host without such a pool and harm none that
// has one. The judge, as root, adds four pages to the pool and gives them back.
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "escape/host.h"
#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kPage = size_t{2} << 20;
constexpr int kPages = 4;
constexpr unsigned kMemoryFileHuge = 4;  // MFD_HUGETLB
constexpr char kPool[] = "/proc/sys/vm/nr_hugepages";

Observation Map() {
  void* page =
      ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  return page == MAP_FAILED ? Blocked(errno) : Escaped("a mapping of huge pages");
}

Observation File() { return FromCall(Call(SYS_memfd_create, "huge", kMemoryFileHuge), "a file of huge pages"); }

// An ordinary user may not, unless the host says so.
Observation Segment() {
  const int segment = ::shmget(IPC_PRIVATE, kPage, IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600);
  if (segment < 0) return Blocked(errno);
  ::shmctl(segment, IPC_RMID, nullptr);
  return Escaped("a segment of huge pages");
}

// Takes what the pool has, and holds it.
Observation Take() {
  int taken = 0;
  while (taken < kPages) {
    void* page =
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
    if (page == MAP_FAILED) break;
    ++taken;
  }
  SayReadyAndWait();
  return taken == 0 ? Blocked(ENOMEM) : Escaped("took " + std::to_string(taken) + " huge pages");
}

long FreePages() {
  const std::string text = ReadText("/proc/meminfo");
  const size_t line = text.find("HugePages_Free:");
  return line == std::string::npos ? -1 : std::atol(text.c_str() + line + 15);
}

// Adds to the host's pool for as long as it lives.
class Pool {
 public:
  Pool() : before_(std::atol(ReadText(kPool).c_str())) { Set(before_ + kPages); }
  ~Pool() { Set(before_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  static void Set(long pages) { WriteText(kPool, std::to_string(pages)); }
  long before_;
};

Judgement JudgePool(Host& host) {
  constexpr char kTake[] = "F16/take";
  const Pool pool;
  const long before = FreePages();
  if (before < kPages) return Vacuous("the host has no huge pages, and only root can add some");
  const auto taken_while = [&](Neighbour neighbour) {
    const long taken = neighbour.ready() ? before - FreePages() : -1;
    const Outcome ended = neighbour.End();
    return ended.Saw(kTake) ? taken : -1;
  };
  if (taken_while(Neighbour::Bare(host, kTake)) < kPages) return Vacuous("a bare program does not get them either");
  const long taken = taken_while(Neighbour::InSandbox(host, kTake, {}, {"--memory", "64M"}));
  if (taken < 0) return Broken("the probe said nothing");
  return taken == 0 ? Held("the pool is untouched") : Broken(std::to_string(taken) + " huge pages of the host taken");
}

const Registration kRow(Row{
    .id = "F16",
    .title = "the host's pool of huge pages: mapped, in a memory file, in a segment",
    .severity = Severity::kHostDenial,
    .walls = {"seccomp"},
    .attempts = {{.name = "map", .probe = Map, .expect = {.errnos = {ENOMEM}}},
                 {.name = "file", .probe = File, .expect = {.errnos = {EINVAL}}},
                 {.name = "segment", .probe = Segment, .expect = {.errnos = {ENOMEM}}},
                 {.name = "take", .probe = Take, .judge_only = true}},
    .judge = JudgePool,
});

}  // namespace

}  // namespace caisson::escape
