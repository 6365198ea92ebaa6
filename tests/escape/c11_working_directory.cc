// A working directory outside the root: by a descriptor the supervisor has open, by a link of /proc, by a directory
// that is gone (CVE-2024-21626). The name may look harmless if it is a link that came with the source.
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kDirectoryAt = 7;

// Where am I, and does going up from here lead to the canary?
Observation Look() {
  char path[PATH_MAX] = {};
  // The kernel's own answer: the C library hides "(unreachable)".
  const long size = Call(SYS_getcwd, path, sizeof(path));
  std::string up = ".";
  for (int level = 0; level < 40; ++level, up += "/..") {
    for (const std::string& name : {std::string("/canary"), Canary("FILE")}) {
      if (::access((up + name).c_str(), R_OK) == 0) return Escaped("the canary is at " + up + name);
    }
  }
  if (size > 0 && path[0] != '/') return Partial(std::string("works in ") + path);
  return Blocked(0, size > 0 ? path : "nowhere");
}

// `gone`: started from a directory that does not exist any more.
Finished Start(Host& host, std::vector<std::string> argv, bool gone) {
  Command command;
  command.argv = std::move(argv);
  const std::string start = host.MakeDirectory();
  command.before_exec = [&host, start, gone] {
    const int directory = ::open(host.directory().c_str(), O_RDONLY | O_DIRECTORY);
    if (directory < 0 || ::dup2(directory, kDirectoryAt) < 0 || ::chdir(start.c_str()) != 0) return false;
    return !gone || ::rmdir(start.c_str()) == 0;
  };
  return Process::Start(command).Finish(kPatienceMs);
}

Judgement JudgeDirectories(Host& host) {
  // The descriptor leads to the canary for a program that simply goes there.
  Outcome bare;
  std::vector<std::string> go = {"/bin/sh", "-c", "cd /proc/self/fd/7 && exec \"$@\"", "sh"};
  for (const std::string& word : host.ControlCommand("C11")) go.push_back(word);
  bare.process = Start(host, go, false);
  if (const auto saw = bare.Saw("C11"); !saw || saw->seen != Seen::kEscaped)
    return Vacuous("a bare program does not get there either");

  std::vector<std::string> tried = {"/proc/self/cwd",
                                    "/proc/self/cwd/../..",
                                    "/proc/self/root",
                                    "/proc/1/root/..",
                                    "/dev/fd/7",
                                    "/..",
                                    "/workspace/../../..",
                                    "..",
                                    "",
                                    "\n",
                                    host.directory(),
                                    "/proc/self/fd/7"};
  const std::string workspace = host.MakeDirectory();
  ::chmod(workspace.c_str(), 0755);
  std::filesystem::copy_file(host.selftest(), workspace + "/caisson-selftest");
  const auto link = [&](const std::string& target) {
    const std::string name = "link" + std::to_string(tried.size());
    std::filesystem::create_symlink(target, workspace + "/" + name);
    tried.push_back("/workspace/" + name);
  };
  for (int fd = 0; fd <= 24; ++fd) link("/proc/self/fd/" + std::to_string(fd));
  for (const char* target : {"/proc/1/cwd", "/proc/1/root", "/proc/1/fd/3", "/proc/self/cwd/../..", "/.."})
    link(target);
  size_t refused = 0, inside = 0;
  const auto run = [&](const std::vector<std::string>& flags, bool gone) -> std::string {
    std::vector<std::string> argv = {
        host.caisson(), "run",    "--quiet", "-e", "CAISSON_CANARY_FILE=" + host.directory() + "/canary",
        "--workspace",  workspace};
    argv.insert(argv.end(), flags.begin(), flags.end());
    argv.push_back("--");
    for (const std::string& word : host.ProbeCommand("C11")) argv.push_back(word);
    Outcome outcome;
    outcome.process = Start(host, argv, gone);
    const auto saw = outcome.Saw("C11");
    if (!saw) {
      // Refused by policy, or by the child that could not enter it: nothing ran in either case.
      const int code = outcome.process.exit_code;
      if (code == 125 || code == 126 || code == 127 || code == 2) return ++refused, "";
      return "exit code " + std::to_string(outcome.process.exit_code) + ": " + outcome.process.err;
    }
    ++inside;
    return saw->seen == Seen::kBlocked ? "" : saw->detail;
  };
  for (const std::string& directory : tried) {
    if (const std::string fault = run({"-w", directory}, false); !fault.empty())
      return Broken("working directory \"" + directory + "\": " + fault);
  }
  inside = 0;
  if (const std::string fault = run({}, true); !fault.empty()) return Broken("from a removed directory: " + fault);
  if (inside == 0) return Broken("does not start from a removed directory");
  return Held(std::to_string(refused) + " of " + std::to_string(tried.size()) + " refused, the rest inside");
}

const Registration kRow(Row{
    .id = "C11",
    .title = "a working directory outside: /proc/self/fd/N, /proc/1/cwd, a removed one",
    .severity = Severity::kEscape,
    .walls = {"PID 1 keeps only streams", "working directory looked at after chdir", "pivot_root"},
    .attempts = {{.probe = Look, .judge_only = true}},
    .judge = JudgeDirectories,
});

}  // namespace

}  // namespace caisson::escape
