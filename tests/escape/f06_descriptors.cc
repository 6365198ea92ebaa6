// Opens files until it fails: its own limit must be reached, the host's must not.
//
// SAFETY: bare, five thousand files, and forty thousand in several processes for a moment; the host's table has room
// for many times that, or the row is not tried.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <vector>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kMany = 5000;
constexpr int kBareProcesses = 8;
constexpr int kProcesses = 32;  // in the sandbox, its first one included

struct Opened {
  int files = 0;
  int error = 0;
};

Opened OpenMany() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Opened opened;
  while (opened.files < kMany && opened.error == 0) {
    if (::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
      opened.error = errno;
    } else {
      ++opened.files;
    }
  }
  return opened;
}

Observation Open() {
  const Opened opened = OpenMany();
  if (opened.error != 0) return Blocked(opened.error, "after " + std::to_string(opened.files));
  return Escaped("opened 5000 files");
}

// As many processes as there may be, each with as many files as it can have, all at once.
Observation Family() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return NotApplicable("no pipe");
  std::vector<pid_t> children;
  for (pid_t child = 0; child >= 0 && std::ssize(children) < (IsControl() ? kBareProcesses : kProcesses - 1);) {
    child = ::fork();
    if (child == 0) {
      const Opened opened = OpenMany();
      (void)!::write(ends[1], &opened, sizeof(opened));
      for (;;) ::pause();
    }
    if (child > 0) children.push_back(child);
  }
  ::close(ends[1]);
  int files = 0, most = 0, error = 0;
  for (size_t i = 0; i < children.size(); ++i) {
    Opened opened;
    if (::read(ends[0], &opened, sizeof(opened)) != sizeof(opened)) break;
    files += opened.files;
    most = std::max(most, opened.files);
    error = std::max(error, opened.error);
  }
  SayReadyAndWait();
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  const std::string detail = std::to_string(files) + " files in " + std::to_string(children.size()) + " processes";
  return most >= kMany ? Escaped(detail) : Blocked(error, detail);
}

struct Table {
  double used = 0, unused = 0, maximum = 0;
};

Table ReadTable() {
  Table table;
  std::istringstream(ReadText("/proc/sys/fs/file-nr")) >> table.used >> table.unused >> table.maximum;
  return table;
}

// While the family holds all it could get, the host has at least half of its table.
Judgement JudgeHost(Host& host) {
  const Table before = ReadTable();
  if (before.maximum - before.used < 20.0 * kBareProcesses * kMany)
    return Vacuous("the host's table of open files is too small to try");
  {
    Neighbour bare = Neighbour::Bare(host, "F06/family");
    if (!bare.ready()) return Vacuous("bare, the processes do not start: " + bare.End().process.err);
    const double taken = ReadTable().used - before.used;
    bare.End();
    if (taken < 0.9 * kBareProcesses * kMany) return Vacuous("bare, no files are counted");
  }
  Neighbour family = Neighbour::InSandbox(host, "F06/family", {}, {"--pids-limit", std::to_string(kProcesses)});
  const bool ready = family.ready();
  const Table during = ReadTable();
  const Outcome run = family.End();
  const auto saw = run.Saw("F06/family");
  // Ending at the memory limit is as good as ending at the limit of files.
  const bool ended_by_memory = run.result && run.result->failure_class == "MemoryLimitViolation";
  if (!ended_by_memory && (!ready || !saw)) return Broken("the family did not run: " + run.process.err);
  if (saw && saw->seen == Seen::kEscaped) return Broken("a process had " + saw->detail);
  if (saw && saw->error != EMFILE) return Broken("refused with " + std::to_string(saw->error) + ", " + saw->detail);
  if (during.used > during.maximum / 2) return Broken("the host had more than half of its files open");
  return Held("the host keeps half of its table" + (saw ? " beside " + saw->detail : ""));
}

const Registration kRow(Row{
    .id = "F06",
    .title = "open files: until the process, or the host, has no more",
    .severity = Severity::kHostDenial,
    .walls = {"resource limits"},
    .attempts = {{.name = "process", .probe = Open, .expect = {.errnos = {EMFILE}}},
                 {.name = "family", .probe = Family, .judge_only = true}},
    .judge = JudgeHost,
});

}  // namespace

}  // namespace caisson::escape
