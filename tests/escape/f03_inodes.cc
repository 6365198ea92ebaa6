// Uses up inodes instead of bytes: empty files, directories, links, attributes. Each costs the kernel memory.
//
// SAFETY: 72 MiB of them in all, where the sandbox has room for 64. Bare they are made in memory, not to bother a disk,
// and removed at once.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kScratchInodes = 65'536;  // each stands for one KiB
constexpr size_t kAttribute = 60'000;

int MakeFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  return fd < 0 ? errno : 0;
}

// One of four kinds each time.
int MakeThing(const std::string& directory, int number) {
  const std::string path = directory + "/" + std::to_string(number);
  switch (number % 4) {
    case 0:
      return MakeFile(path);
    case 1:
      return ::symlink("nowhere", path.c_str()) == 0 ? 0 : errno;
    case 2:
      return ::mkdir(path.c_str(), 0700) == 0 ? 0 : errno;
    default:
      return ::link((directory + "/" + std::to_string(number - 3)).c_str(), path.c_str()) == 0 ? 0 : errno;
  }
}

// Attributes are taken from what is granted for inodes, so a few large ones do for many files. Linux 6.6; before it
// there are none. How many inodes that was worth.
Observation Attributes(const std::string& directory, int inodes) {
  const std::string value(kAttribute, 'x');
  for (int i = 0, used = 0; used < inodes; ++i, used += static_cast<int>(kAttribute >> 10)) {
    const std::string path = directory + "/attribute" + std::to_string(i);
    if (const int error = MakeFile(path); error != 0) return Blocked(error, "after " + std::to_string(i));
    if (::setxattr(path.c_str(), "user.x", value.data(), value.size(), 0) != 0) return Blocked(errno);
  }
  return Escaped("72 MiB of attributes");
}

Observation OnlyAttributes(const std::string& directory) { return Attributes(directory, kScratchInodes + 8192); }

Observation Things(const std::string& place) {
  // Most of it quickly.
  const bool quickly = Attributes(place, kScratchInodes - 4096).seen == Seen::kEscaped;
  for (int i = 0; i < (quickly ? 8192 : kScratchInodes + 8192); ++i) {
    if (const int error = MakeThing(place, i); error != 0) return Blocked(error, "after " + std::to_string(i));
  }
  return Escaped("more inodes and names than 65536");
}

Observation InPlace(Observation (*probe)(const std::string&)) {
  char place[] = "/dev/shm/caisson-selftest-XXXXXX";
  if (!IsControl()) return probe("/scratch");
  if (::mkdtemp(place) == nullptr) return NotApplicable("nothing can be written to /dev/shm");
  const Observation seen = probe(place);
  std::filesystem::remove_all(place);
  return seen;
}

// Every name is a call that is looked at: an emulated machine needs a minute for them all.
const std::vector<std::string> kFlags = {"--timeout", "170s"};
const Expectation kFull = {.errnos = {ENOSPC}, .reports = {{"FilesystemWriteViolation", "scratch_limit"}}};

// What a bomb leaves must not keep the host busy: from the program's last word to the end of Caisson.
Judgement JudgeCleaning(Host& host) {
  const int64_t begin = NowMs();
  Sandbox sandbox = host.Start({.command = host.ProbeCommand("F03/things"), .flags = kFlags});
  std::string line;
  if (!sandbox.process.ReadLine(&line, kPatienceMs)) return Broken("the probe said nothing");
  const int64_t start = NowMs();
  const Outcome run = host.Finish(std::move(sandbox));
  const int64_t took = NowMs() - start;
  if (took > 2000 && took > start - begin) return Broken("cleaning up took " + std::to_string(took) + " ms");
  const ReportedViolation* found = run.result ? run.result->Find("FilesystemWriteViolation", "scratch_limit") : nullptr;
  if (found == nullptr) return Broken("not reported");
  if (found->evidence.count("free_inodes") == 0 || found->evidence.at("free_inodes") != "0")
    return Broken("the evidence does not show that the inodes ran out");
  return Held("cleaned up at once");
}

const Registration kRow(Row{
    .id = "F03",
    .title = "an inode bomb: empty files, directories, links, attributes",
    .severity = Severity::kHostDenial,
    .walls = {"scratch inodes"},
    .attempts = {{.name = "things", .probe = [] { return InPlace(Things); }, .expect = kFull, .flags = kFlags},
                 // One that no longer fits is refused before the last inode is taken: then nothing is full.
                 {.name = "attributes",
                  .probe = [] { return InPlace(OnlyAttributes); },
                  .expect = {.errnos = {ENOSPC},
                             .reports = {{.violation_class = "FilesystemWriteViolation",
                                          .reason = "scratch_limit",
                                          .optional = true}}}}},
    .judge = JudgeCleaning,
});

}  // namespace

}  // namespace caisson::escape
