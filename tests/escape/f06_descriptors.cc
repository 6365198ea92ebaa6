// Opens files until there are no more: its own, which must end, and the host's, which must not.
//
// SAFETY: five thousand descriptors; the host's table has room for hundreds of times that.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kMany = 5000;

Observation Open() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  for (int i = 0; i < kMany; ++i) {
    if (::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) return Blocked(errno, "after " + std::to_string(i));
  }
  return Escaped("opened 5000 files");
}

// Every process of a sandbox at its limit must leave the host at least half of its table.
Judgement JudgeHost(Host& host) {
  const Outcome run = host.Run({.command = {"sh", "-c", "ulimit -Hn"}});
  const double each = std::atof(run.process.out.c_str());
  if (each <= 0) return Broken("the limit cannot be read inside: " + run.process.out + run.process.err);
  constexpr double kProcesses = 256;
  double used = 0, unused = 0, maximum = 0;
  std::istringstream(ReadText("/proc/sys/fs/file-nr")) >> used >> unused >> maximum;
  if (maximum <= 0) return Vacuous("the host does not say how many files it can have open");
  return each * kProcesses <= maximum / 2 ? Held("the host keeps half of its table")
                                          : Broken("a sandbox could take most of the host's open files");
}

const Registration kRow(Row{
    .id = "F06",
    .title = "open files: until the process, or the host, has no more",
    .severity = Severity::kHostDenial,
    .walls = {"resource limits"},
    .attempts = {{.probe = Open, .expect = {.errnos = {EMFILE}}}},
    .judge = JudgeHost,
});

}  // namespace

}  // namespace caisson::escape
