// Leaves the group that limits it, or uses resources before it is in one.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr const char* kPlaces[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory",
                                   "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd"};

// Bare it is the group this process is in already, so that nothing changes.
Observation WriteProcs() {
  Tally tally;
  for (const char* place : kPlaces) {
    std::string own = "";
    std::istringstream lines(ReadText("/proc/self/cgroup"));
    const std::string controller = std::string(place).substr(std::string(place).rfind('/') + 1);
    for (std::string line; std::getline(lines, line);) {
      const size_t first = line.find(':'), second = line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const std::string names = line.substr(first + 1, second - first - 1);
      const bool unified = names.empty() && (controller == "unified" || controller == "cgroup");
      if (unified || (!names.empty() && ("," + names + ",").find(controller + ",") != std::string::npos))
        own = line.substr(second + 1);
    }
    int error = 0;
    const bool done = WriteText(place + own + "/cgroup.procs", "0", &error);
    tally.Add(place, done ? 0L : -long{error});
  }
  return tally.SumAny();
}

// A path would tell a program the name of its group.
Observation SeePath() {
  std::istringstream lines(ReadText("/proc/self/cgroup"));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 2 && line.substr(line.rfind(':')) != ":/") found += line + " ";
  }
  // Outside of any group there is no path to see either.
  if (found.empty() && IsControl()) return NotApplicable("the harness is in the root group");
  return found.empty() ? Blocked(0, "only the root is seen") : Escaped(found);
}

// Every process of the sandbox, the first included, seen from outside while it runs.
Judgement JudgeMembership(Host& host) {
  Sandbox sandbox =
      host.Start({.command = {"sh", "-c", "sleep 5 & echo ready; sleep 5"}, .flags = {"--timeout", "6s"}});
  std::string line;
  if (!sandbox.process.ReadLine(&line, kPatienceMs)) return Broken("it did not start");
  const std::string own_groups = ReadText("/proc/self/cgroup");
  std::string faults;
  int seen = 0, outside = 0;
  for (const pid_t pid : Host::Descendants(Host::SupervisorOf(sandbox.process.pid()))) {
    const std::string directory = "/proc/" + std::to_string(pid);
    const std::string name = ReadText(directory + "/comm");
    if (name.rfind("sh\n", 0) != 0 && name.rfind("sleep\n", 0) != 0) continue;
    ++seen;
    const std::string groups = ReadText(directory + "/cgroup");
    for (const char* controller : {":memory:", ":pids:"}) {
      const size_t at = groups.find(controller);
      // On the second version's hierarchy one line stands for all.
      const std::string line_of = at == std::string::npos ? groups.substr(groups.find("0::")) : groups.substr(at);
      if (line_of.substr(0, line_of.find('\n')).find("caisson-") == std::string::npos) {
        ++outside;
        faults = name + groups;
      }
    }
  }
  sandbox.process.Signal(SIGKILL);
  const Outcome ended = host.Finish(std::move(sandbox));
  if (seen < 2) return Broken("only " + std::to_string(seen) + " of its processes were found");
  if (outside == 0) return Held("every process is in the group");
  const Outcome again = host.Run({.command = {"true"}});
  if (again.result && again.result->cgroup_driver == "none") return Vacuous("there are no groups here");
  return Broken("outside of its group: " + faults);
}

const Registration kRow(Row{
    .id = "F14",
    .title = "leaving the cgroup, or acting before it holds",
    .severity = Severity::kHostDenial,
    .walls = {"no cgroup file system", "cgroup namespace", "joined before exec"},
    .attempts = {{.name = "procs",
                  .probe = WriteProcs,
                  .expect = {.errnos = {ENOENT, EROFS, EACCES},
                             .reports = {{.violation_class = "FilesystemWriteViolation",
                                          .reason = "fs.write",
                                          .optional = true}}}},
                 {.name = "path", .probe = SeePath}},
    .judge = JudgeMembership,
});

}  // namespace

}  // namespace caisson::escape
