// A file that changes while Caisson reads it: it grows faster than it can be read, or shrinks below what was asked for.
//
// SAFETY: it grows by holes, which take no room.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

// Changes `path` in a process of its own for as long as it lives.
class Changer {
 public:
  Changer(const std::string& path, bool shrink) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    (void)!::ftruncate(file, 1 << 20);
    pid_ = ::fork();
    for (off_t size = 1 << 20; pid_ == 0 && ::getppid() > 1; ::usleep(200)) {
      size = shrink ? (size == 0 ? 8 << 20 : 0) : size + (off_t{64} << 20);
      (void)!::ftruncate(file, size);
    }
    if (pid_ == 0) ::_exit(0);
    ::close(file);
  }
  ~Changer() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

int ReadToEnd(const std::string& path) {
  static char chunk[65536];
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  while (::read(file, chunk, sizeof(chunk)) > 0) {
  }
  return 0;
}

Judgement JudgeChanging(Host& host) {
  const std::string directory = host.MakeDirectory();
  std::ofstream(directory + "/main.py") << "print('ran')\n";
  const std::string request = json{{"source", {{"path", directory}}}}.dump();
  {
    const Changer growing(directory + "/data", false);
    const Ended careless = InChild([&] { return ReadToEnd(directory + "/data"); }, 1);
    if (careless.signal != SIGALRM) return Vacuous("even a careless reader comes to the end");
    const Outcome run = host.Verify(request);
    if (run.process.timed_out) return Broken("a source that grows is read for ever");
    if (run.process.exit_code < 0 || run.process.exit_code > 3)
      return Broken("a source that grows: " + run.process.err);
  }
  const Changer shrinking(directory + "/data", true);
  for (int turn = 0; turn < 5; ++turn) {
    const Outcome run = host.Verify(request);
    if (run.process.timed_out || run.process.exit_code < 0 || run.process.exit_code > 3)
      return Broken("a source that shrinks: " + run.process.err);
  }
  return Held("read once, to where it ended at first");
}

const Registration kRow(Row{
    .id = "H09",
    .title = "files that grow or shrink while they are read",
    .severity = Severity::kPeerDenial,
    .walls = {"snapshot"},
    .judge = JudgeChanging,
});

}  // namespace

}  // namespace caisson::escape
