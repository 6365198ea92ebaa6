// Programs that carry a privilege: the host's set-user-id programs, which show inside, and one handed in by a mount.
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// A zombie still shows its owner, so there is no race.
constexpr char kHostPrograms[] = R"(
tried = []
for name in ('su', 'passwd', 'chsh', 'newgrp', 'mount'):
    path = f'/usr/bin/{name}'
    try:
        if not os.stat(path).st_mode & stat.S_ISUID: continue
    except OSError: continue
    child = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    status = pathlib.Path(f'/proc/{child.pid}/status').read_text()
    uids = next(line for line in status.splitlines() if line.startswith('Uid:')).split()[1:]
    child.kill()
    tried.append(name)
    if set(uids) != {str(os.getuid())}: escaped(f'{name} ran as {uids}')
if not tried: not_applicable('no set-user-id program is installed')
blocked(0, 'no gain')
)";

Observation WhoAmI() {
  if (::geteuid() != ::getuid() || ::geteuid() == 0) return Escaped("effective uid " + std::to_string(::geteuid()));
  if (::getauxval(AT_SECURE) != 0) return Partial("the kernel took it for a privileged program");
  return Blocked(0, "no gain");
}

// A set-user-id-root copy of this program, which only root can make.
Judgement JudgeMounted(Host& host) {
  if (::geteuid() != 0) return Vacuous("only root can hand in a set-user-id-root program");
  const std::string directory = host.MakeDirectory();
  const std::string program = directory + "/privileged";
  std::filesystem::copy_file(host.selftest(), program);
  ::chmod(directory.c_str(), 0755);
  if (::chmod(program.c_str(), 04755) != 0) return Vacuous("no set-user-id program can be made");
  Command command;
  command.argv = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "--probe", "B02/whoami"};
  Outcome control;
  control.process = Process::Start(command).Finish(kPatienceMs);
  const auto bare = control.Saw("B02/whoami");
  if (!bare || bare->seen != Seen::kEscaped) return Vacuous("set-user-id has no effect in the harness's directory");
  const Outcome run =
      host.Run({.command = {"/opt/in/privileged", "--probe", "B02/whoami"}, .flags = {"-v", directory + ":/opt/in"}});
  const auto inside = run.Saw("B02/whoami");
  if (!inside) return Broken("the probe said nothing: " + run.process.err);
  if (inside->seen != Seen::kBlocked) return Broken(inside->detail);
  return Held("no gain");
}

const Registration kRow(Row{
    .id = "B02",
    .title = "set-user-id programs: the host's own, and one in a mount",
    .severity = Severity::kEscape,
    .walls = {"no_new_privs", "nosuid mounts", "user namespace"},
    // Some of them lock /etc/passwd if they succeed.
    .attempts = {{.name = "host_programs",
                  .python = kHostPrograms,
                  .control = {.place = Place::kOrdinaryUser},
                  .expect = {.reports = {{.violation_class = "FilesystemWriteViolation",
                                          .reason = "fs.write",
                                          .optional = true}}}},
                 {.name = "whoami", .probe = WhoAmI, .judge_only = true}},
    .judge = JudgeMounted,
});

}  // namespace

}  // namespace caisson::escape
