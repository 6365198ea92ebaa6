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

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kScratchInodes = 65'536;  // each stands for one KiB
constexpr int kThings = 8192;           // more than is left, or than kFewInodes
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

Observation MakeThings(const std::string& place, const char* what) {
  for (int i = 0; i < kThings; ++i) {
    if (const int error = MakeThing(place, i); error != 0) return Blocked(error, "after " + std::to_string(i));
  }
  return Escaped(what);
}

Observation Things(const std::string& place) {
  // Most of it quickly: every name is a call that is looked at, and tens of thousands of them take minutes when
  // emulated.
  if (Attributes(place, kScratchInodes - 4096).seen != Seen::kEscaped)
    return NotApplicable("here no attributes take most of the inodes; F03/few has a lower limit");
  return MakeThings(place, "more inodes and names than 65536");
}

// Against a limit of its own.
Observation Few(const std::string& place) { return MakeThings(place, "more inodes and names than 2048"); }

Observation InPlace(Observation (*probe)(const std::string&)) {
  char place[] = "/dev/shm/caisson-selftest-XXXXXX";
  if (!IsControl()) return probe("/scratch");
  if (::mkdtemp(place) == nullptr) return NotApplicable("nothing can be written to /dev/shm");
  const Observation seen = probe(place);
  std::filesystem::remove_all(place);
  return seen;
}

const ParkedSetup kFull = {.errnos = {ENOSPC}, .reports = {{"FilesystemWriteViolation", "scratch_limit"}}};

std::string FaultInReport(const Outcome& run) {
  const ReportedViolation* found = run.result ? run.result->Find("FilesystemWriteViolation", "scratch_limit") : nullptr;
  if (found == nullptr) return "not reported: " + run.process.err;
  const auto free = found->evidence.find("free_inodes");
  return free != found->evidence.end() && free->second == "0" ? ""
                                                              : "the evidence does not show that the inodes ran out";
}

Judgement JudgeFew(Host& host) {
  const std::string profile =
      host.WriteFile("few.yaml", "version: 1\nname: few\nextends: balanced\nlimits: {scratch_inodes: 2048}\n");
  if (const auto bare = host.RunControl("F03/few").Saw("F03/few"); !bare || bare->seen != Seen::kEscaped)
    return Vacuous("without a sandbox it does not work either");
  const Outcome run = host.Run({.command = host.ProbeCommand("F03/few"), .flags = {"--profile", profile}});
  const auto saw = run.Saw("F03/few");
  if (!saw || saw->seen != Seen::kBlocked || saw->error != ENOSPC)
    return Broken("few: " + (saw ? saw->detail : "it said nothing: " + run.process.err));
  const std::string fault = FaultInReport(run);
  return fault.empty() ? Held("the limit of a profile holds") : Broken("few: " + fault);
}

// What a bomb leaves must not keep the host busy: from the program's last word to the end of Caisson.
Judgement JudgeCleaning(Host& host) {
  const Judgement few = JudgeFew(host);
  if (few.verdict != Verdict::kPass) return few;
  const int64_t begin = NowMs();
  Sandbox sandbox = host.Start({.command = host.ProbeCommand("F03/things")});
  std::string line;
  if (!sandbox.process.ReadLine(&line, kPatienceMs)) return Broken("the probe said nothing");
  const int64_t start = NowMs();
  const Outcome run = host.Finish(std::move(sandbox));
  const int64_t took = NowMs() - start;
  if (const auto saw = run.Saw("F03/things"); saw && saw->seen == Seen::kNotApplicable) return few;
  if (took > 2000 && took > start - begin) return Broken("cleaning up took " + std::to_string(took) + " ms");
  const std::string fault = FaultInReport(run);
  return fault.empty() ? Held("cleaned up at once") : Broken(fault);
}

const Registration kRow(Row{
    .id = "F03",
    .title = "an inode bomb: empty files, directories, links, attributes",
    .severity = Severity::kHostDenial,
    .walls = {"scratch inodes"},
    .attempts = {{.name = "few", .probe = [] { return InPlace(Few); }, .judge_only = true},
                 {.name = "things", .probe = [] { return InPlace(Things); }, .expect = kFull},
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
