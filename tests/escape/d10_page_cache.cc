// Advice to drop a file's pages from the cache: every program on the host that uses that file, above all those of /usr,
// reads them from the disk again.
//
// SAFETY: a file of the harness's own, in a directory that is shown to the sandbox as the host's files are.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kSize = size_t{1} << 20;
constexpr char kInside[] = "/data/cached";

Observation Drop() {
  const char* given = ::getenv("SELFTEST_FILE");
  const UniqueFd file(::open(given != nullptr ? given : kInside, O_RDONLY | O_CLOEXEC));
  if (!file) return NotApplicable("no file");
  // The register is wider than what the kernel reads of it.
  const int error = ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  const long high = Call(SYS_fadvise64, file.get(), 0, 0, 0x100000000L | POSIX_FADV_DONTNEED);
  return error == 0 && high == 0 ? Blocked(0, "told that it was done") : Blocked(error != 0 ? error : EINVAL);
}

// Pages of the file that are in memory, of all its pages.
size_t CachedPages(const std::string& path, size_t* all) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* memory = file ? ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, file.get(), 0) : MAP_FAILED;
  if (memory == MAP_FAILED) return 0;
  std::vector<unsigned char> pages(kSize / 4096);
  *all = pages.size();
  size_t cached = 0;
  if (::mincore(memory, kSize, pages.data()) == 0) {
    for (const unsigned char page : pages) cached += page & 1U;
  }
  ::munmap(memory, kSize);
  return cached;
}

Judgement JudgeCache(Host& host) {
  constexpr char kDrop[] = "D10/drop";
  const std::string path = host.WriteFile("cached", std::string(kSize, 'x'));
  ::chmod(path.c_str(), 0644);
  {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || ::fsync(file.get()) != 0) return Vacuous("no file that can be written out");
  }
  const auto read = [&] { return ReadText(path).size() == kSize; };
  size_t all = 0;
  if (!read() || CachedPages(path, &all) != all) return Vacuous("this file is not cached as a whole");
  Command bare;
  bare.argv = host.ControlCommand(kDrop);
  bare.env = {{"SELFTEST_FILE", path}};
  Process::Start(bare).Finish(kPatienceMs);
  if (CachedPages(path, &all) > all / 2) return Vacuous("a bare program cannot drop it either: no disk below it");
  if (!read() || CachedPages(path, &all) != all) return Vacuous("this file is not cached as a whole");
  const std::string directory = path.substr(0, path.rfind('/'));
  const Outcome run = host.Run({.command = host.ProbeCommand(kDrop), .flags = {"-v", directory + ":/data:ro"}});
  const auto saw = run.Saw(kDrop);
  if (!saw || saw->seen != Seen::kBlocked || !run.result) return Broken("the probe said nothing: " + run.process.err);
  if (saw->error != 0) return Broken("an ordinary program is told that its advice failed: " + saw->detail);
  if (!run.result->violations.empty()) return Broken("advice that ordinary programs give is a violation");
  const size_t left = CachedPages(path, &all);
  return left == all ? Held("advice without effect")
                     : Broken("only " + std::to_string(left) + " of " + std::to_string(all) + " pages are left");
}

const Registration kRow(Row{
    .id = "D10",
    .title = "dropping the host's files from the page cache",
    .severity = Severity::kPeerDenial,
    .walls = {"seccomp"},
    .attempts = {{.name = "drop", .probe = Drop, .judge_only = true}},
    .judge = JudgeCache,
});

}  // namespace

}  // namespace caisson::escape
