// The kernel's own account of a process's rights: for the first process, for one it has executed, and as the host sees
// it.
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr char kLook[] = R"(
def faults(text):
    status = dict(line.split(':\t', 1) for line in text.splitlines() if ':\t' in line)
    found = [n for n in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb') if int(status[n], 16)]
    if status['NoNewPrivs'] != '1': found.append('NoNewPrivs')
    if status['Seccomp'] != '2': found.append('Seccomp')
    if '0' in status['Uid'].split() + status['Gid'].split(): found.append('Uid')
    # A caller whose first group is also a supplementary group keeps that one.
    if set(status['Groups'].split()) - {'65534', *status['Gid'].split()}: found.append('Groups')
    return found
own = faults(pathlib.Path('/proc/self/status').read_text())
child = faults(subprocess.run(['cat', '/proc/self/status'], capture_output=True, text=True).stdout)
if own or child: escaped(f'own: {own}, child: {child}')
blocked(0, 'nothing left')
)";

// Reports that it is ready and stays until its input ends.
Observation Wait() {
  constexpr char kReady[] = "ready\n";
  char byte;
  if (::write(1, kReady, sizeof(kReady) - 1) < 0 || ::read(0, &byte, 1) < 0) return NotApplicable("no streams");
  return Blocked(0, "waited");
}

// The real, effective, saved and file-system uid of a process as the host numbers them.
std::vector<long> HostUids(pid_t pid) {
  const std::string status = ReadText("/proc/" + std::to_string(pid) + "/status");
  const size_t line = status.find("\nUid:");
  if (line == std::string::npos) return {};
  std::istringstream fields(status.substr(line + 5, status.find('\n', line + 5) - line - 5));
  std::vector<long> uids;
  for (long uid; fields >> uid;) uids.push_back(uid);
  return uids;
}

// No process of the sandbox is root on the host, whatever its user id inside.
Judgement JudgeHostUser(Host& host) {
  if (::geteuid() == 0 && HostUids(::getpid()) != std::vector<long>(4, 0)) return Vacuous("cannot read uids");
  Sandbox sandbox = host.Start({.command = host.ProbeCommand("B01/wait"), .open_input = true});
  std::string line;
  if (!sandbox.process.ReadLine(&line, kPatienceMs) || line != "ready") return Broken("the probe did not start");
  int workloads = 0;
  std::string roots;
  for (const pid_t pid : Host::Descendants(Host::SupervisorOf(sandbox.process.pid()))) {
    if (ReadText("/proc/" + std::to_string(pid) + "/comm").rfind("caisson-selftes", 0) != 0) continue;
    ++workloads;
    for (const long uid : HostUids(pid)) {
      if (uid == 0) roots = "process " + std::to_string(pid) + " is root on the host";
    }
  }
  sandbox.process.CloseInput();
  const Outcome run = host.Finish(std::move(sandbox));
  if (!run.Saw("B01/wait")) return Broken("the probe did not end: " + run.process.err);
  if (workloads == 0) return Vacuous("the host does not list the sandbox's processes");
  if (!roots.empty()) return Broken(roots);
  return Held("not root on the host");
}

const Registration kRow(Row{
    .id = "B01",
    .title = "privileges left over: /proc/self/status of itself and a child",
    .severity = Severity::kEscape,
    .walls = {"capabilities", "no_new_privs", "seccomp", "user namespace"},
    .attempts = {{.name = "status", .python = kLook}, {.name = "wait", .probe = Wait, .judge_only = true}},
    .judge = JudgeHostUser,
});

}  // namespace

}  // namespace caisson::escape
