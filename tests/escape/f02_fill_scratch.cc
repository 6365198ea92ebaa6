// Fills what is writable. All of it lies on file systems in memory, so an unlimited one is a memory bomb that appears
// in no process.
//
// SAFETY: 24 MiB against a scratch of 8 MiB, and 160 MiB against a memory of 64 MiB; the controls write to a directory
// that the harness removes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// In files of one MiB, so that it is the file system that refuses and not the limit on one file's size.
Observation Fill(const std::string& directory, int megabytes) {
  const std::vector<char> block(size_t{1} << 20, 'x');
  for (int i = 0; i < megabytes; ++i) {
    const std::string path = directory + "/fill" + std::to_string(i);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return Blocked(errno, "after " + std::to_string(i) + " files");
    for (size_t written = 0; written < block.size();) {
      const ssize_t size = ::write(fd, block.data() + written, block.size() - written);
      if (size <= 0) return Blocked(errno, "after " + std::to_string(i) + " MiB");
      written += static_cast<size_t>(size);
    }
    ::close(fd);
  }
  ::usleep(300'000);
  return Escaped("wrote " + std::to_string(megabytes) + " MiB");
}

Attempt FillOne(const char* name, const char* directory) {
  return {.name = name,
          .probe = [directory] { return Fill(IsControl() ? WritableDirectory() : directory, 24); },
          .expect = {.errnos = {ENOSPC}, .reports = {{"FilesystemWriteViolation", "scratch_limit"}}},
          .flags = {"--scratch", "8M"}};
}

// Each holds less than the cap, which is one over all three.
Observation FillThree() {
  Observation last;
  for (const char* inside : {"/scratch", "/tmp", "/dev/shm"}) {
    std::string directory = inside;
    if (IsControl()) {
      directory = WritableDirectory() + directory.substr(directory.rfind('/'));
      ::mkdir(directory.c_str(), 0700);
    }
    last = Fill(directory, 6);
    if (last.seen != Seen::kEscaped) break;
  }
  return last;
}

Judgement JudgeEvidence(Host& host) {
  if (const auto saw = host.RunControl("F02/scratch").Saw("F02/scratch"); !saw || saw->seen != Seen::kEscaped)
    return Vacuous("the control failed");
  const Outcome run = host.Run({.command = host.ProbeCommand("F02/scratch"), .flags = {"--scratch", "8M"}});
  const ReportedViolation* found = run.result ? run.result->Find("FilesystemWriteViolation", "scratch_limit") : nullptr;
  if (found == nullptr) return Broken("not reported");
  if (found->evidence.count("free_bytes") == 0 || found->evidence.at("free_bytes") != "0")
    return Broken("the evidence does not show a full file system");
  return Held("no byte was free");
}

const Registration kRow(Row{
    .id = "F02",
    .title = "filling /scratch, /tmp and /dev/shm; more files than memory",
    .severity = Severity::kHostDenial,
    .walls = {"scratch size", "memory limit"},
    .attempts = {FillOne("scratch", "/scratch"),
                 FillOne("tmp", "/tmp"),
                 FillOne("shm", "/dev/shm"),
                 {.name = "spread",
                  .probe = FillThree,
                  .expect = {.errnos = {ENOSPC}, .reports = {{"FilesystemWriteViolation", "scratch_limit"}}},
                  .flags = {"--scratch", "8M"}},
                 {.name = "memory",
                  .probe = [] { return Fill(WritableDirectory(), 160); },
                  .expect = {.death = Death::kRequired, .reports = {{"MemoryLimitViolation", "limit.mem"}}},
                  .flags = {"--memory", "64M", "--scratch", "512M"}}},
    .judge = JudgeEvidence,
});

}  // namespace

}  // namespace caisson::escape
