// Descriptors that were handed over by mistake (CVE-2024-21626): the caller's, and the supervisor's own.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kDirectoryAt = 7, kSocketAt = 100, kFileAt = 1000;

Observation Scan() {
  std::string found;
  for (int fd = 3; fd < 4096; ++fd) {
    if (Call(SYS_fcntl, fd, F_GETFL) < 0) continue;
    struct stat info {};
    ::fstat(fd, &info);
    const char* kind = S_ISDIR(info.st_mode) ? "directory" : S_ISSOCK(info.st_mode) ? "socket" : "other";
    found += " " + std::to_string(fd) + ":" + kind;
  }
  // Simulates a caller that forgot to close one.
  const int file = ::openat(kDirectoryAt, "canary", O_RDONLY | O_CLOEXEC);
  if (file >= 0) return Escaped("read the canary's directory;" + found);
  return found.empty() ? Blocked(EBADF, "only the three streams") : Partial("descriptors:" + found);
}

// In the child, before exec: as a careless service has them open.
bool LeaveOpen(const std::string& directory) {
  const int opened = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  int ends[2];
  if (opened < 0 || ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
  return ::dup2(opened, kDirectoryAt) >= 0 && ::dup2(ends[0], kSocketAt) >= 0 && ::dup2(opened, kFileAt) >= 0;
}

Outcome RunWith(Host& host, std::vector<std::string> argv) {
  Command command;
  command.argv = std::move(argv);
  command.before_exec = [&] { return LeaveOpen(host.directory()); };
  Outcome outcome;
  outcome.process = Process::Start(command).Finish(kPatienceMs);
  return outcome;
}

Judgement JudgeLeak(Host& host) {
  const auto bare = RunWith(host, host.ControlCommand("C10")).Saw("C10");
  if (!bare || bare->seen != Seen::kEscaped) return Vacuous("a bare program does not inherit them either");
  for (const bool terminal : {false, true}) {
    std::vector<std::string> argv = {host.caisson(), "run", "--quiet", "--workspace",
                                     host.selftest().substr(0, host.selftest().rfind('/'))};
    if (terminal) argv.push_back("-t");
    argv.push_back("--");
    for (const std::string& word : host.ProbeCommand("C10")) argv.push_back(word);
    const Outcome run = RunWith(host, argv);
    const auto inside = run.Saw("C10");
    const std::string how = terminal ? "with -t: " : "";
    if (!inside) return Broken(how + "the probe said nothing: " + run.process.err);
    if (inside->seen != Seen::kBlocked) return Broken(how + inside->detail);
  }
  return Held("only the three streams");
}

const Registration kRow(Row{
    .id = "C10",
    .title = "descriptors that the caller or the supervisor left open",
    .severity = Severity::kEscape,
    .walls = {"close_range before exec", "close_range after clone"},
    .attempts = {{.probe = Scan, .judge_only = true}},
    .judge = JudgeLeak,
});

}  // namespace

}  // namespace caisson::escape
