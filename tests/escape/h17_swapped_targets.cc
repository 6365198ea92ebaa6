// A mount point that is by turns a directory and a link out of the source, changed while the sandbox is set up.
#include <signal.h>
#include <sys/wait.h>

#include <string>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE
constexpr int kRaces = 40;

Judgement JudgeRace(Host& host) {
  const PlantedTree tree(host);
  tree.Directory("x");
  tree.Directory("x/place");
  tree.Link("y", tree.outside);
  const pid_t flipper = ::fork();
  if (flipper == 0) {
    while (::getppid() > 1) {
      ::renameat2(AT_FDCWD, (tree.source + "/x").c_str(), AT_FDCWD, (tree.source + "/y").c_str(), kExchange);
    }
    ::_exit(0);
  }
  // Code that checks first and creates afterwards is led outside.
  bool naive_lost = false;
  for (const int64_t end = NowMs() + 5000; !naive_lost && NowMs() < end;) {
    struct stat info {};
    if (::lstat((tree.source + "/x").c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    ::mkdir((tree.source + "/x/new").c_str(), 0755);
    naive_lost = ::rmdir((tree.outside + "/new").c_str()) == 0;
  }
  std::string fault;
  int refused = 0, ran = 0;
  for (int turn = 0; naive_lost && fault.empty() && turn < kRaces; ++turn) {
    const MountKind& kind = kMountKinds[static_cast<size_t>(turn) % kMountKinds.size()];
    const char* workspace = turn % 2 == 0 ? "cow" : "rw";
    // Targets that may be created in the upper layer, or must exist.
    const std::string target = kind.directory && turn % 4 == 1 ? "/workspace/x/place" : "/workspace/x/new";
    const Outcome run =
        host.Run({.command = {"true"},
                  .flags = {"--workspace", tree.source + ":" + workspace, "-v",
                            (kind.directory ? tree.directory : tree.file) + ":" + target + ":" + kind.access},
                  .with_probe = false});
    if (run.process.exit_code == 125)
      ++refused;
    else if (run.process.exit_code == 0)
      ++ran;
    else
      fault = "ended with " + std::to_string(run.process.exit_code) + ": " + run.process.err;
    if (!std::filesystem::is_empty(tree.outside)) fault = "something was made outside";
  }
  ::kill(flipper, SIGKILL);
  ::waitpid(flipper, nullptr, 0);
  if (!naive_lost) return Vacuous("a careless look cannot be raced here either");
  if (!fault.empty()) return Broken(fault);
  return Held("of " + std::to_string(kRaces) + " races none was lost; " + std::to_string(refused) + " refused, " +
              std::to_string(ran) + " ran");
}

const Registration kRow(Row{
    .id = "H17",
    .title = "mount points swapped for links during set-up",
    .severity = Severity::kEscape,
    .walls = {"mount points are opened without following links", "mounts go onto what was opened"},
    .judge = JudgeRace,
});

}  // namespace

}  // namespace caisson::escape
