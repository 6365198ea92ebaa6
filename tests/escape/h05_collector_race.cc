// A process that outlives the program changes its files while the artifacts are being read: it swaps a directory and a
// link, or continues to write. No host file may be read, and the stored files must be a consistent state.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

// Many files to walk, a swapper in a session of its own that ignores every signal, and an end in the middle of it. That
// a collector holds out against a swapper that is still alive is shown a hundred thousand times over by its unit test.
const char kSwap[] = R"(
import ctypes, os, signal, sys, time
target, name = sys.argv[1], sys.argv[2]
os.mkdir('/scratch/d')
open('/scratch/d/' + name, 'w').write('mine')
os.symlink(target, '/scratch/l')
for i in range(300): open(f'/scratch/{i}', 'w').write('x')
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    for n in range(1, 65):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass
    libc = ctypes.CDLL(None)
    for turn in range(1 << 62):
        libc.renameat2(-100, b'/scratch/d', -100, b'/scratch/l', 2)
        if turn == 100: os.write(writer, b'x')
os.read(reader, 1)
)";

// Two files that always hold the same number, or for a moment numbers that differ by one, with much to read between
// them. A reader that reads the one, then the bytes between, and then the other while the writer lives, finds them far
// apart.
const char kCount[] = R"(
import os, signal, sys
top = sys.argv[1]
def make(name): return os.open(f'{top}/{name}', os.O_RDWR | os.O_CREAT, 0o644)
first = make('first')
for i in range(40): os.write(make(f'between{i}'), b'x' * (1 << 20))
last = make('last')
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    for n in range(1, 65):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass
    for turn in range(1 << 62):
        number = b'%020d' % turn
        os.pwrite(first, number, 0)
        os.pwrite(last, number, 0)
        if turn == 1000: os.write(writer, b'x')
os.read(reader, 1)
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
  for (const int64_t end = NowMs() + 10'000; !lost && NowMs() < end;) {
    struct stat info {};
    if (::lstat(d.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
      lost = ReadText(d + "/" + name).find(secret) != std::string::npos;
  }
  ::kill(flipper, SIGKILL);
  ::waitpid(flipper, nullptr, 0);
  return lost;
}

Outcome Collect(Host& host, const std::vector<std::string>& argv, const std::string& stored) {
  const json request = {{"source", {{"files", {{"file", "x"}}}}},
                        {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", argv}}}},
                        {"artifacts", {"/scratch/**"}}};
  return host.Verify(request.dump(), {"--artifacts", stored});
}

Judgement JudgeSwaps(Host& host) {
  const std::string secret = "nobody inside may see this", file = host.WriteFile("secret", secret);
  const std::string target = file.substr(0, file.rfind('/')), name = file.substr(file.rfind('/') + 1);
  if (!CarelessReaderLoses(host.MakeDirectory(), target, name, secret))
    return Vacuous("a careless reader cannot be raced here either");
  for (int turn = 0; turn < 6; ++turn) {
    const std::string stored = host.MakeDirectory() + "/stored";
    const Outcome run = Collect(host, {"python3", "-I", "-c", kSwap, target, name}, stored);
    if (!run.result || run.result->status != "pass")
      return Broken("the run failed: " + run.process.err + run.process.out);
    if (json::parse(run.result->text)["artifacts"].size() < 300) return Broken("artifacts are missing");
    for (const auto& entry : std::filesystem::directory_iterator(stored)) {
      if (ReadText(entry.path()).find(secret) != std::string::npos) return Broken("the host's file was stored");
    }
  }
  return Held("in 6 races nothing of the host was read");
}

// How far apart the two numbers are when everything in `directory` is read, in either order; -1: they are not there.
long long ReadApart(const std::string& directory) {
  const std::string first = ReadText(directory + "/first");
  for (int i = 0; i < 40; ++i) (void)ReadText(directory + "/between" + std::to_string(i));
  const std::string last = ReadText(directory + "/last");
  if (first.size() != 20 || last.size() != 20) return -1;
  return std::llabs(std::atoll(first.c_str()) - std::atoll(last.c_str()));
}

Judgement JudgeOneMoment(Host& host) {
  {
    const std::string directory = host.MakeDirectory();
    Process bare = Process::Start({.argv = {"python3", "-I", "-c", kCount, directory}});
    bare.Finish(kPatienceMs);
    // On a busy machine the writer may not run while we read; one success is enough.
    long long apart = ReadApart(directory);
    for (int tries = 0; tries < 500 && apart <= 1; ++tries) {
      ::usleep(20'000);
      apart = ReadApart(directory);
    }
    for (const pid_t left : Host::Descendants(::getpid())) ::kill(left, SIGKILL);
    if (apart <= 1) return Vacuous("bare, nothing changes while it is read either");
  }
  const std::string stored = host.MakeDirectory() + "/stored";
  const Outcome run = Collect(host, {"python3", "-I", "-c", kCount, "/scratch"}, stored);
  if (!run.result || run.result->status != "pass")
    return Broken("the run failed: " + run.process.err + run.process.out);
  std::vector<long long> numbers;
  for (const auto& entry : std::filesystem::directory_iterator(stored)) {
    if (std::filesystem::file_size(entry.path()) == 20) numbers.push_back(std::atoll(ReadText(entry.path()).c_str()));
  }
  // Files with the same bytes may be stored once.
  if (numbers.empty() || numbers.size() > 2) return Broken("the two files are not among the artifacts");
  if (numbers.front() < 1000) return Broken("the writer did not write");
  if (std::llabs(numbers.front() - numbers.back()) > 1) return Broken("something wrote while the artifacts were read");
  return Held("what is stored is one moment's");
}

Judgement JudgeRace(Host& host) {
  const Judgement swaps = JudgeSwaps(host);
  if (swaps.verdict != Verdict::kPass) return swaps;
  const Judgement moment = JudgeOneMoment(host);
  return moment.verdict == Verdict::kPass ? Held(swaps.detail + "; " + moment.detail) : moment;
}

const Registration kRow(Row{
    .id = "H05",
    .title = "swapping directories and links, and writing on, while artifacts are read",
    .severity = Severity::kHostLeak,
    .walls = {"collected when nothing lives", "collector"},
    .judge = JudgeRace,
});

}  // namespace

}  // namespace caisson::escape
