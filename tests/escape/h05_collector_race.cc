// A process that outlives the program swaps a directory and a link while the artifacts are being read.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

// Many files to walk, a swapper in a session of its own that ignores every signal, and an end at once.
const char kProgram[] = R"(
import ctypes, os, signal, sys, time
target, name = sys.argv[1], sys.argv[2]
os.mkdir('/scratch/d')
open('/scratch/d/' + name, 'w').write('mine')
os.symlink(target, '/scratch/l')
for i in range(300): open(f'/scratch/{i}', 'w').write('x')
ready = '/scratch/ready'
if os.fork() == 0:
    os.setsid()
    for n in range(1, 65):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass
    libc = ctypes.CDLL(None)
    open(ready, 'w').close()
    while True: libc.renameat2(-100, b'/scratch/d', -100, b'/scratch/l', 2)
while not os.path.exists(ready): time.sleep(0.001)
)";

bool CarelessReaderLoses(const std::string& directory, const std::string& target, const std::string& name,
                         const std::string& secret) {
  const std::string d = directory + "/d", l = directory + "/l";
  ::mkdir(d.c_str(), 0700);
  std::ofstream(d + "/" + name) << "mine";
  (void)!::symlink(target.c_str(), l.c_str());
  const pid_t flipper = ::fork();
  if (flipper == 0) {
    while (::getppid() > 1) ::renameat2(AT_FDCWD, d.c_str(), AT_FDCWD, l.c_str(), 2);
    ::_exit(0);
  }
  bool lost = false;
  for (const int64_t end = NowMs() + 3000; !lost && NowMs() < end;) {
    struct stat info {};
    if (::lstat(d.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
      lost = ReadText(d + "/" + name).find(secret) != std::string::npos;
  }
  ::kill(flipper, SIGKILL);
  ::waitpid(flipper, nullptr, 0);
  return lost;
}

Judgement JudgeRace(Host& host) {
  const std::string secret = "nobody inside may see this", file = host.WriteFile("secret", secret);
  const std::string target = file.substr(0, file.rfind('/')), name = file.substr(file.rfind('/') + 1);
  if (!CarelessReaderLoses(host.MakeDirectory(), target, name, secret))
    return Vacuous("a careless reader cannot be raced here either");
  const json request = {
      {"source", {{"files", {{"file", "x"}}}}},
      {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "-c", kProgram, target, name}}}}},
      {"artifacts", {"/scratch/**"}}};
  for (int turn = 0; turn < 6; ++turn) {
    const std::string stored = host.MakeDirectory() + "/stored";
    const Outcome run = host.Verify(request.dump(), {"--artifacts", stored});
    if (!run.result || run.result->status != "pass")
      return Broken("the run failed: " + run.process.err + run.process.out);
    if (json::parse(run.result->text)["artifacts"].size() < 300) return Broken("artifacts are missing");
    for (const auto& entry : std::filesystem::directory_iterator(stored)) {
      if (ReadText(entry.path()).find(secret) != std::string::npos) return Broken("the host's file was stored");
    }
  }
  return Held("in 6 races nothing of the host was read");
}

const Registration kRow(Row{
    .id = "H05",
    .title = "swapping directories and links while artifacts are read",
    .severity = Severity::kHostLeak,
    .walls = {"collected when nothing lives", "collector"},
    .judge = JudgeRace,
});

}  // namespace

}  // namespace caisson::escape
