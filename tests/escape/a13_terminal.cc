// Typing into the terminal of the sandbox's caller (CVE-2017-5226): bytes pushed into its input queue are read
// by the shell after the sandbox has ended.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// On a file that is no terminal, the kernel's own answer is ENOTTY.
Observation Requests() {
  char two = 2;
  int discipline = 0;
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  Tally tally;
  const auto request = [&](const char* name, unsigned long number, void* argument) {
    tally.Add(name, FromHarmlessCall(Call(SYS_ioctl, null, number, argument), {ENOTTY}, ""));
  };
  request("TIOCSTI", TIOCSTI, &two);
  request("TIOCLINUX", TIOCLINUX, &two);
  request("TIOCCONS", TIOCCONS, nullptr);
  request("TIOCSETD", TIOCSETD, &discipline);
  return tally.Sum();
}

// Every way to a terminal this process has.
Observation Inject() {
  Tally tally;
  char typed = 'x';
  for (int fd = 0; fd < 3; ++fd) tally.Add("stream " + std::to_string(fd), Call(SYS_ioctl, fd, TIOCSTI, &typed));
  const int terminal = ::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
  tally.Add("/dev/tty", terminal < 0 ? -errno : Call(SYS_ioctl, terminal, TIOCSTI, &typed));
  tally.Add("TIOCSCTTY", Call(SYS_ioctl, 0, TIOCSCTTY, 1));
  return tally.SumAny();
}

struct Terminal {
  UniqueFd master, slave;
};

// Raw, so that one byte typed is one byte to read.
Terminal OpenTerminal() {
  Terminal terminal;
  terminal.master.Reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[64];
  if (!terminal.master || ::grantpt(terminal.master.get()) != 0 || ::unlockpt(terminal.master.get()) != 0 ||
      ::ptsname_r(terminal.master.get(), name, sizeof(name)) != 0) {
    return terminal;
  }
  terminal.slave.Reset(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  struct termios mode {};
  if (terminal.slave && ::tcgetattr(terminal.slave.get(), &mode) == 0) {
    ::cfmakeraw(&mode);
    ::tcsetattr(terminal.slave.get(), TCSANOW, &mode);
  }
  return terminal;
}

int Waiting(const Terminal& terminal) {
  int bytes = 0;
  return ::ioctl(terminal.slave.get(), FIONREAD, &bytes) == 0 ? bytes : -1;
}

// Runs `argv` as the leader of a session that has the terminal, as a shell's command has.
Finished RunOn(const Terminal& terminal, std::vector<std::string> argv) {
  Command command;
  command.argv = std::move(argv);
  command.new_session = true;
  command.standard_input = terminal.slave.get();
  command.before_exec = [] { return ::ioctl(0, TIOCSCTTY, 0) == 0; };
  return Process::Start(command).Finish(kPatienceMs);
}

Judgement JudgeInjection(Host& host) {
  const Terminal bare = OpenTerminal();
  if (!bare.slave) return Vacuous("no pseudo-terminal can be had here");
  RunOn(bare, host.ControlCommand("A13/inject"));
  if (Waiting(bare) <= 0) return Vacuous("without a sandbox nothing can be typed into a terminal either");
  for (const bool own_terminal : {false, true}) {
    const Terminal terminal = OpenTerminal();
    const std::string result = host.MakeDirectory() + "/result.json";
    std::vector<std::string> argv = {host.caisson(),
                                     "run",
                                     "--quiet",
                                     "--result",
                                     result,
                                     "--workspace",
                                     host.selftest().substr(0, host.selftest().rfind('/'))};
    if (own_terminal) argv.push_back("-t");
    argv.push_back("--");
    for (const std::string& word : host.ProbeCommand("A13/inject")) argv.push_back(word);
    Outcome run;
    run.process = RunOn(terminal, argv);
    run.result = ParseResult(ReadText(result));
    const std::string how = own_terminal ? "with -t: " : "without -t: ";
    if (!run.result) return Broken(how + "Caisson wrote no result: " + run.process.err);
    if (Waiting(terminal) != 0) return Broken(how + "something was typed into the caller's terminal");
    if (run.result->Find("SyscallViolation", "syscall.tty") == nullptr) return Broken(how + "nothing was reported");
    const auto saw = run.Saw("A13/inject");
    if (!own_terminal && (!saw || saw->seen != Seen::kBlocked)) return Broken(how + "the probe was not blocked");
  }
  return Held("the caller's terminal got nothing");
}

const Registration kRow(Row{
    .id = "A13",
    .title = "typing into the caller's terminal: TIOCSTI, TIOCLINUX, /dev/tty",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "own session", "streams are pipes or an own terminal"},
    .attempts = {{.name = "requests",
                  .probe = Requests,
                  .control = {.reaches_kernel = true},
                  .expect = {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.tty", "ioctl"}}}},
                 {.name = "inject", .probe = Inject, .judge_only = true}},
    .judge = JudgeInjection,
});

}  // namespace

}  // namespace caisson::escape
