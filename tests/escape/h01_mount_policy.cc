// Requests mounts that no workload may see: by name, by another name, through a link, and by changing the target of a
// name between check and use.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE

std::vector<std::string> HostileSources(const std::string& directory) {
  ::mkdir((directory + "/.ssh").c_str(), 0700);
  (void)!::symlink("/etc", (directory + "/link").c_str());
  (void)!::symlink("link", (directory + "/link_to_link").c_str());
  (void)!::symlink("loop", (directory + "/loop").c_str());
  (void)!::symlink("/proc/self/root", (directory + "/magic").c_str());
  ::mkfifo((directory + "/fifo").c_str(), 0600);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (directory + "/engine.sock").c_str(), sizeof(address.sun_path) - 1);
  ::bind(socket.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof(address));
  return {"/",
          "//",
          "/.",
          "/etc",
          "/etc/",
          "//etc//",
          "/etc/passwd",
          "/usr/../etc",
          directory + "/../../../../../../../../etc",
          directory + "/link",
          directory + "/link/",
          directory + "/link/ssl",
          directory + "/link_to_link",
          directory + "/loop",
          directory + "/magic",
          directory + "/fifo",
          directory + "/engine.sock",
          directory + "/.ssh",
          directory,  // holds credentials
          "/proc",
          "/proc/self/root",
          "/proc/self/cwd",
          "/proc/self/root/etc",
          "/proc/1/root",
          "/proc/thread-self/cwd",
          "/dev",
          "/dev/fd/0",
          "/dev/null",
          "/sys",
          "/run",
          "/var",  // holds what containers keep
          "/boot",
          ""};
}

const std::vector<std::string> kHostileTargets = {
    "/",        "/proc",    "/proc/self", "/dev",      "/etc", "/usr/bin", "/workspace/../etc",
    "relative", "/data/..", "//data",     "/data/./x", "",     "/sys"};

bool WasRefusedByRun(Host& host, const std::string& mount) {
  const Outcome run = host.Run({.command = {"sh", "-c", "echo RAN"}, .flags = {"-v", mount}, .with_probe = false});
  return run.process.exit_code == 125 && run.process.out.find("RAN") == std::string::npos;
}

Outcome VerifyMount(Host& host, const std::string& source, const std::string& target) {
  return host.Verify(json{{"source", {{"files", {{"file", "x"}}}}},
                          {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"sh", "-c", "echo RAN"}}}}},
                          {"mounts", {{{"source", source}, {"target", target}}}}}
                         .dump());
}

bool WasRefusedByVerify(const Outcome& run) {
  return (run.process.exit_code == 2 || run.process.exit_code == 3) && run.process.out.find("RAN") == std::string::npos;
}

bool HasEntry(const std::string& directory, const std::string& name) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
  while (stream) {
    const struct dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    if (name == entry->d_name) return true;
  }
  return false;
}

// A name that is by turns a harmless directory and a link to a refused one.
Judgement JudgeRace(Host& host) {
  const std::string directory = host.MakeDirectory(), name = directory + "/x", other = directory + "/y";
  ::mkdir(name.c_str(), 0755);
  ::close(::open((name + "/marker").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  (void)!::symlink("/etc", other.c_str());
  const pid_t flipper = ::fork();
  if (flipper == 0) {
    while (::getppid() > 1) ::renameat2(AT_FDCWD, name.c_str(), AT_FDCWD, other.c_str(), kExchange);
    ::_exit(0);
  }
  bool naive_lost = false;
  for (const int64_t end = NowMs() + 3000; !naive_lost && NowMs() < end;) {
    struct stat info {};
    if (::lstat(name.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) naive_lost = HasEntry(name, "passwd");
  }
  std::string fault;
  int shown = 0;
  for (int turn = 0; naive_lost && fault.empty() && turn < 12; ++turn) {
    const Outcome run = host.Run({.command = {"ls", "/data"}, .flags = {"-v", name + ":/data"}, .with_probe = false});
    if (run.process.out.find("passwd") != std::string::npos) fault = "a refused directory was shown";
    if (run.process.out.find("marker") != std::string::npos) ++shown;
  }
  ::kill(flipper, SIGKILL);
  ::waitpid(flipper, nullptr, 0);
  if (!naive_lost) return Vacuous("a careless look cannot be raced here either");
  return fault.empty() ? Held("refused; of 12 races none was lost, " + std::to_string(shown) + " showed the right one")
                       : Broken(fault);
}

Judgement JudgePolicy(Host& host) {
  // Names that look like a refused one but are permitted.
  const std::string parent = host.MakeDirectory();
  for (const char* name : {"/etc", "/.sshx", "/proc2"}) {
    ::mkdir((parent + name).c_str(), 0755);
    if (WasRefusedByRun(host, parent + name + ":/data")) return Vacuous("even " + parent + name + " is refused");
    if (WasRefusedByVerify(VerifyMount(host, parent + name, "/data")))
      return Vacuous("even harmless mounts are refused");
  }
  const std::string directory = host.MakeDirectory();
  for (const std::string& source : HostileSources(directory)) {
    if (!WasRefusedByRun(host, source + ":/data")) return Broken("run -v " + source + ":/data is not refused");
    if (!WasRefusedByVerify(VerifyMount(host, source, "/data")))
      return Broken("a mount of '" + source + "' is not refused");
    const Outcome workspace =
        host.Run({.command = {"echo", "RAN"}, .flags = {"--workspace", source}, .with_probe = false});
    if (!source.empty() && workspace.process.exit_code != 125)
      return Broken("--workspace " + source + " is not refused");
  }
  for (const std::string& target : kHostileTargets) {
    if (!WasRefusedByRun(host, parent + "/etc:" + target)) return Broken("-v to '" + target + "' is not refused");
    if (!WasRefusedByVerify(VerifyMount(host, parent + "/etc", target)))
      return Broken("a mount at '" + target + "' is not refused");
  }
  const std::string nul = parent + "/etc" + std::string(1, '\0') + "x";
  if (!WasRefusedByVerify(VerifyMount(host, nul, "/data"))) return Broken("a NUL byte is not refused");
  return JudgeRace(host);
}

const Registration kRow(Row{
    .id = "H01",
    .title = "being shown /, /etc, /proc, sockets: by name, link, or a race",
    .severity = Severity::kEscape,
    .walls = {"path policy", "what was judged is what is mounted"},
    .judge = JudgePolicy,
});

}  // namespace

}  // namespace caisson::escape
