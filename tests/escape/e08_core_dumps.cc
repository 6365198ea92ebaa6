// A crash makes the kernel write a file, or start a program on the host as root, as core_pattern says. A limit of
// 0 stops the file but not the program; a limit of 1 stops both.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

long Raise() {
  const struct rlimit unlimited { RLIM_INFINITY, RLIM_INFINITY };
  return ::setrlimit(RLIMIT_CORE, &unlimited) == 0 ? 0 : -errno;
}

int Entries(const std::string& directory) {
  int count = 0;
  DIR* list = ::opendir(directory.c_str());
  while (list != nullptr && ::readdir(list) != nullptr) ++count;
  if (list != nullptr) ::closedir(list);
  return count;
}

// Crashes in a directory of its own with all the limit it can get, and looks whether the kernel says that it dumped.
Observation Crash() {
  const std::string directory = WritableDirectory() + "/crash";
  ::mkdir(directory.c_str(), 0755);
  const int before = Entries(directory);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::chdir(directory.c_str()) != 0) ::_exit(1);
    Raise();
    ::prctl(PR_SET_DUMPABLE, 1);
    ::signal(SIGSEGV, SIG_DFL);
    ::kill(::getpid(), SIGSEGV);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSIGNALED(status)) return NotApplicable("it did not crash");
  if (Entries(directory) > before) return Escaped("left a core file");
  return WCOREDUMP(status) ? Escaped("was dumped somewhere") : Blocked(0, "no core");
}

Observation Limit() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_CORE, &limit);
  if (!IsControl() && (limit.rlim_cur != 1 || limit.rlim_max != 1))
    return Partial("the limit is " + std::to_string(limit.rlim_cur) + " and not 1");
  return FromCall(Raise(), "raised the limit");
}

const Registration kRow(Row{
    .id = "E08",
    .title = "a crash: core files, the host's crash handler, raising the limit",
    .severity = Severity::kEscape,
    .walls = {"RLIMIT_CORE is 1", "capabilities"},
    .attempts = {{.name = "crash", .probe = Crash, .expect = {}},
                 {.name = "limit", .probe = Limit, .expect = {.errnos = {EPERM}}}},
});

}  // namespace

}  // namespace caisson::escape
