// What one job leaves for the next: for the next check of the same request, which runs in the same sandbox, and for the
// next sandbox, which must find nothing.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// A daemon with a name, files in every place that can be written, shared memory under a known key.
constexpr char kTamper[] = R"(
libc = ctypes.CDLL(None, use_errno=True)
key = int(os.environ.get('SELFTEST_KEY', '0'))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        null = os.open('/dev/null', os.O_RDWR)
        for fd in range(3): os.dup2(null, fd)
        os.execvp('sleep', ['sleep', '30.' + str(key)])
    os._exit(0)
os.wait()
for directory in (os.environ.get('CAISSON_CONTROL_DIRECTORY', '/scratch'), '/tmp', '/dev/shm'):
    pathlib.Path(directory, f'left-{key}').write_text('left')
libc.shmget(key, 4096, 0o1600)
blocked(0, 'tampered')
)";

// `kind` is what it looks for: only processes and privileges in the same sandbox, where files are meant to stay.
constexpr char kFind[] = R"(
libc = ctypes.CDLL(None, use_errno=True)
key = int(os.environ.get('SELFTEST_KEY', '0'))
found = []
for entry in os.listdir('/proc'):
    if not entry.isdigit(): continue
    try: command = pathlib.Path('/proc', entry, 'cmdline').read_bytes().split(b'\0')
    except OSError: continue
    if b'30.' + str(key).encode() in command: found.append('process ' + entry)
if os.environ.get('SELFTEST_KIND') != 'same':
    for directory in ('/scratch', '/tmp', '/dev/shm'):
        if os.path.exists(f'{directory}/left-{key}'): found.append(directory)
    if libc.shmget(key, 4096, 0o600) >= 0: found.append('shared memory')
status = pathlib.Path('/proc/self/status').read_text()
if not os.environ.get('CAISSON_CONTROL_DIRECTORY'):
    for line in ('NoNewPrivs:\t1', 'Seccomp:\t2', 'CapEff:\t0000000000000000', 'CapBnd:\t0000000000000000'):
        if line not in status: found.append('not ' + line)
    for fd in os.listdir('/proc/self/fd'):
        if int(fd) > 3: found.append('descriptor ' + fd)
if found: escaped(', '.join(found))
blocked(0, 'nothing found')
)";

// Bare, the second job finds everything; what was left is removed again.
bool ControlFinds(Host& host, const std::string& key) {
  const auto run = [&](const char* id) {
    Command command;
    command.argv = host.ControlCommand(id);
    command.env = {{"SELFTEST_KEY", key}, {"CAISSON_CONTROL_DIRECTORY", host.MakeDirectory()}};
    Outcome outcome;
    outcome.process = Process::Start(command).Finish(kPatienceMs);
    return outcome.Saw(id);
  };
  run("B09/tamper");
  const auto saw = run("B09/find");
  for (const pid_t pid : Host::Descendants(::getpid())) ::kill(pid, SIGKILL);
  for (const char* directory : {"/tmp", "/dev/shm"}) ::unlink((std::string(directory) + "/left-" + key).c_str());
  Process::Start({.argv = {"ipcrm", "-M", key}}).Finish(kPatienceMs);
  return saw && saw->seen == Seen::kEscaped && saw->detail.find("process") != std::string::npos &&
         saw->detail.find("/dev/shm") != std::string::npos && saw->detail.find("shared memory") != std::string::npos;
}

std::string SameSandboxRequest(const Host& host, const std::string& key) {
  using nlohmann::json;
  json checks = json::array();
  for (const char* id : {"B09/tamper", "B09/find"}) {
    checks.push_back({{"name", std::string(id).substr(4)},
                      {"tier", "run"},
                      {"argv", host.ProbeCommand(id)},
                      {"env", {{"SELFTEST_KEY", key}, {"SELFTEST_KIND", "same"}}}});
  }
  const json request = {{"source", {{"files", {{"main.py", ""}}}}}, {"checks", std::move(checks)}};
  return request.dump();
}

Judgement JudgeLeftovers(Host& host) {
  const std::string key = std::to_string(0x43000000 + ::getpid());
  if (!ControlFinds(host, key)) return Vacuous("without a sandbox the second job finds nothing either");

  Outcome same = host.Verify(SameSandboxRequest(host, key));
  if (!same.result) return Broken("verify wrote no result: " + same.process.err);
  same.process.out = same.result->stdout_text;
  const auto after = same.Saw("B09/find");
  if (!same.Saw("B09/tamper") || !after)
    return Broken("the checks did not run: " + same.result->message + same.result->stderr_text);
  if (after->seen != Seen::kBlocked) return Broken("in the same sandbox: " + after->detail);

  const std::vector<std::pair<std::string, std::string>> env = {{"SELFTEST_KEY", key}};
  const Outcome first = host.Run({.command = host.ProbeCommand("B09/tamper"), .env = env});
  const Outcome second = host.Run({.command = host.ProbeCommand("B09/find"), .env = env});
  const auto later = second.Saw("B09/find");
  if (!first.Saw("B09/tamper") || !later) return Broken("the probes did not run: " + second.process.err);
  if (later->seen != Seen::kBlocked) return Broken("in the next sandbox: " + later->detail);
  return Held("the next job finds nothing");
}

const Registration kRow(Row{
    .id = "B09",
    .title = "a second job after one that left a daemon, files, shared memory",
    .severity = Severity::kLateral,
    .walls = {"pid namespace", "ipc namespace", "own scratch", "kill between checks"},
    .attempts = {{.name = "tamper", .python = kTamper, .judge_only = true},
                 {.name = "find", .python = kFind, .judge_only = true}},
    .judge = JudgeLeftovers,
});

}  // namespace

}  // namespace caisson::escape
