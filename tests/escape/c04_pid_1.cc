// PID 1 is a fork of the supervisor: its environment, arguments, memory and program are the host's. And programs that
// the host runs again can be overwritten when they are not running any more (CVE-2019-5736).
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// In the control the parent is the harness.
std::string OfParent(const char* name) { return "/proc/" + std::to_string(::getppid()) + "/" + name; }

Observation Read(const char* name) {
  const int fd = ::open(OfParent(name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Blocked(errno);
  char byte;
  const ssize_t size = ::read(fd, &byte, 1);
  const int error = errno;
  ::close(fd);
  if (size < 0) return Blocked(error);
  return size == 0 ? Blocked(0, "empty") : Escaped(std::string("read ") + name);
}

// Every process may read them, so they must reveal nothing, such as the names of files outside.
Observation Arguments() {
  const std::string text = ReadText(OfParent("cmdline"));
  for (const char character : text) {
    if (character == '/') return Escaped("paths of the host");
  }
  return Blocked(0, "no paths in the arguments");
}

Observation Program() {
  char target[PATH_MAX];
  const ssize_t size = ::readlink(OfParent("exe").c_str(), target, sizeof(target));
  return size < 0 ? Blocked(errno) : Escaped("the path of the program");
}

Observation OpenProgram() {
  const int fd = ::open(OfParent("exe").c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return Blocked(errno);
  ::close(fd);
  return Escaped("a descriptor of the program");
}

// A descriptor of a running program, opened anew for writing when it has ended. Inside it is the program of this suite,
// which belongs to the user there; in the control it is a copy of cat.
constexpr char kOverwrite[] = R"(
directory = os.environ.get('CAISSON_CONTROL_DIRECTORY')
if directory:
    program = directory + '/cat'
    pathlib.Path(program).write_bytes(pathlib.Path('/bin/cat').read_bytes())
    os.chmod(program, 0o755)
    command = [program]
else:
    command = ['/workspace/caisson-selftest', '--probe', 'C04/wait']
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
held = os.open(f'/proc/{child.pid}/exe', os.O_PATH)
def write():
    try: os.open(f'/proc/self/fd/{held}', os.O_WRONLY)
    except OSError as error: return error
while_it_runs = write()
child.communicate()
if while_it_runs is None: escaped('opened a running program for writing')
error = write()
if error: blocked(error)
escaped('opened a program for writing')
)";

Observation Wait() {
  char byte;
  while (::read(0, &byte, 1) > 0) {
  }
  return Blocked(0);
}

Attempt Denied(const char* name, std::function<Observation()> probe) {
  return {.name = name, .probe = std::move(probe), .expect = {.errnos = {EACCES}}};
}

const Registration kRow(Row{
    .id = "C04",
    .title = "/proc/1: environ, cmdline, maps, mem, exe; overwriting a program after it ran",
    .severity = Severity::kEscape,
    .walls = {"PID 1 is not dumpable", "PID 1 forgets its arguments", "read-only mounts"},
    .attempts = {Denied("environ", [] { return Read("environ"); }),
                 Denied("maps", [] { return Read("maps"); }),
                 Denied("auxv", [] { return Read("auxv"); }),
                 {.name = "cmdline", .probe = Arguments, .expect = {}},
                 Denied("exe", Program),
                 Denied("exe_open", OpenProgram),
                 {.name = "overwrite",
                  .python = kOverwrite,
                  .expect = {.errnos = {EROFS}, .reports = {{"FilesystemWriteViolation", "fs.write", "openat"}}}},
                 {.name = "wait", .probe = Wait, .judge_only = true}},
});

}  // namespace

}  // namespace caisson::escape
