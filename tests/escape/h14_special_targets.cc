// Mount targets that are neither files nor directories, and targets of the wrong kind. Opening a pipe to write waits
// for a reader, which never comes.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <vector>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

Judgement JudgeSpecial(Host& host) {
  const PlantedTree tree(host);
  ::mkfifo((tree.source + "/fifo").c_str(), 0666);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (tree.source + "/socket").c_str(), sizeof(address.sun_path) - 1);
  if (::bind(socket.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) != 0)
    return Vacuous("no socket can be made");
  std::vector<std::string> targets = {"/fifo", "/socket", "/fifo/below", "/socket/below", "/plain/below"};
  std::ofstream(tree.source + "/plain") << "x";
  // Only root can make one; a user may have been given one.
  if (::mknod((tree.source + "/device").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0) targets.push_back("/device");

  const Ended control = InChild(
      [&] { return ::open((tree.source + "/fifo").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444) >= 0 ? 0 : 1; }, 1);
  if (control.exited || control.signal != SIGALRM) return Vacuous("opening the pipe does not wait");

  const auto before = tree.Names();
  size_t tried = 0;
  const auto run = [&](const std::string& target, const MountKind& kind, const char* workspace) -> std::string {
    ++tried;
    const std::string what = (kind.directory ? tree.directory : tree.file) + ":/workspace" + target + ":" + kind.access;
    const Outcome outcome = host.Run({.command = {"sh", "-c", "echo RAN"},
                                      .flags = {"--workspace", tree.source + ":" + workspace, "-v", what},
                                      .with_probe = false});
    if (outcome.process.exit_code != 125) return what + " was not refused: " + outcome.process.err;
    // The error names the target and is not a set-up timeout.
    if (outcome.process.err.find("target /workspace" + target) == std::string::npos)
      return what + " was refused for another reason: " + outcome.process.err;
    if (const std::string changed = Difference(before, tree.Names()); !changed.empty())
      return what + " changed the host:" + changed;
    return "";
  };
  for (const std::string& target : targets) {
    for (const MountKind& kind : kMountKinds) {
      for (const char* workspace : {"ro", "rw"}) {
        if (const std::string fault = run(target, kind, workspace); !fault.empty()) return Broken(fault);
      }
    }
    if (const std::string fault = run(target, {false, "ro"}, "cow"); !fault.empty()) return Broken(fault);
  }
  // A directory on a file, a file on a directory.
  tree.Directory("directory");
  const auto with_directory = tree.Names();
  for (const auto& [target, kind] :
       {std::pair{"/plain", MountKind{true, "ro"}}, std::pair{"/directory", MountKind{false, "ro"}}}) {
    const Outcome outcome =
        host.Run({.command = {"true"},
                  .flags = {"--workspace", tree.source, "-v",
                            (kind.directory ? tree.directory : tree.file) + ":/workspace" + target + ":" + kind.access},
                  .with_probe = false});
    ++tried;
    if (outcome.process.exit_code != 125 || outcome.process.err.find("target") == std::string::npos)
      return Broken(std::string(target) + ": " + outcome.process.err);
  }
  if (with_directory != tree.Names()) return Broken("the host was changed");
  return Held(std::to_string(tried) + " refused at once");
}

const Registration kRow(Row{
    .id = "H14",
    .title = "pipes, sockets and devices as mount targets; files for directories",
    .severity = Severity::kSelfDenial,
    .walls = {"mount points are opened without opening what is there"},
    .judge = JudgeSpecial,
});

}  // namespace

}  // namespace caisson::escape
