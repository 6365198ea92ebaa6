// An image's author chooses every name, link and file in it. While a sandbox is set up, the host's tree is reachable,
// so a link that set-up followed would show the host; and what an image has must not become the sandbox's own.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

namespace fs = std::filesystem;

// An image store in a directory of the harness, removed with everything in it.
class HostileStore {
 public:
  explicit HostileStore(Host& host) : host_(host), directory_(host.MakeDirectory()) {
    ::setenv("CAISSON_IMAGES", directory_.c_str(), 1);
  }
  HostileStore(const HostileStore&) = delete;
  HostileStore& operator=(const HostileStore&) = delete;
  ~HostileStore() { ::unsetenv("CAISSON_IMAGES"); }

  bool Import(const std::string& root) const {
    Process process = Process::Start({.argv = {host_.caisson(), "image", "import", "hostile", root}});
    return process.Finish(kPatienceMs).exit_code == 0;
  }
  // The tree of the only image. Its author may also be the store's owner: what comes from a store is not trusted.
  std::string Tree() const {
    for (const auto& entry : fs::directory_iterator(directory_ + "/trees")) return entry.path() / "root";
    return "";
  }
  // Replaces a directory of the tree by a link after the store has listed it as a directory.
  bool Replace(const std::string& name, const std::string& target) const {
    const std::string tree = Tree();
    ::chmod(tree.c_str(), 0755);
    const bool replaced = ::rename((tree + "/" + name).c_str(), (tree + "/was-" + name).c_str()) == 0 &&
                          ::symlink(target.c_str(), (tree + "/" + name).c_str()) == 0;
    ::chmod(tree.c_str(), 0555);
    return replaced;
  }
  void PutBack(const std::string& name) const {
    const std::string tree = Tree();
    ::chmod(tree.c_str(), 0755);
    ::unlink((tree + "/" + name).c_str());
    ::rename((tree + "/was-" + name).c_str(), (tree + "/" + name).c_str());
    ::chmod(tree.c_str(), 0555);
  }

 private:
  Host& host_;
  std::string directory_;
};

// The selftest is static, so it runs in any image: with --probe it is the only program that the image needs.
std::string MakeRoot(Host& host) {
  const std::string root = host.MakeDirectory();
  for (const char* name : {"usr", "usr/bin", "etc", "opt", "srv"}) fs::create_directory(root + "/" + name);
  fs::copy_file(host.selftest(), root + "/usr/bin/caisson-selftest");
  ::chmod((root + "/usr/bin/caisson-selftest").c_str(), 06755);
  std::ofstream(root + "/etc/passwd") << "planted:x:0:0::/:/bin/sh\n";
  std::ofstream(root + "/etc/mark") << "MARK\n";
  std::ofstream(root + "/opt/file") << "x\n";
  std::ofstream(root + "/srv/file") << "x\n";
  return root;
}

constexpr char kProgram[] = "/usr/bin/caisson-selftest";

// What the host has and no image may show: the directory in which the harness put a mark.
Observation SeeHost() {
  const char* path = std::getenv("CAISSON_MARK");
  if (path == nullptr) return NotApplicable("no mark");
  for (const char* top : {"", "/opt", "/srv"}) {
    for (const std::string& name : {std::string(path), std::string("/mark")}) {
      if (!ReadText(top + name).empty()) return Escaped("read " + (top + name));
    }
  }
  return Blocked(ENOENT, "not there");
}

// Changes a file of the image, which its owner outside could.
Observation Change() {
  const char* file = std::getenv("CAISSON_CHANGED");
  const std::string path = file != nullptr ? file : "/opt/file";
  // Where root runs the sandbox, the files are root's, and only the mount shows that a second wall is gone.
  struct statvfs mount {};
  constexpr unsigned long kWanted = ST_RDONLY | ST_NOSUID | ST_NODEV;
  if (file == nullptr && ::statvfs("/opt", &mount) == 0 && (mount.f_flag & kWanted) != kWanted)
    return Escaped("mounted writable, with set-user-id or with devices");
  ::chmod(path.c_str(), 0666);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return NotApplicable("no file");
  if ((info.st_mode & 0222) != 0) return Escaped("its mode was changed");
  return WriteText(path, "changed") ? Escaped("written") : Blocked(errno, "write");
}

Observation Become() {
  struct stat info {};
  if (::stat("/proc/self/exe", &info) != 0) return NotApplicable("stat");
  if ((info.st_mode & 06000) != 0) return Escaped("the set-user-id bit came along");
  if (::geteuid() != ::getuid()) return Escaped("another user");
  const std::string names = ReadText("/etc/passwd");
  if (names.find("planted") != names.npos) return Escaped("the image's accounts are used");
  return Blocked(0, "an ordinary program");
}

Judgement JudgeImages(Host& host) {
  const HostileStore store(host);
  const std::string root = MakeRoot(host);
  if (!store.Import(root)) return Vacuous("the image cannot be imported");
  const std::string mark = host.WriteFile("mark", "MARK");

  // The controls: the same attempts without a sandbox.
  ::setenv("CAISSON_MARK", mark.c_str(), 1);
  const std::string changed = host.WriteFile("changed", "x");
  ::chmod(changed.c_str(), 0444);
  ::setenv("CAISSON_CHANGED", changed.c_str(), 1);
  for (const char* attempt : {"H19/see", "H19/change"}) {
    const auto saw = host.RunControl(attempt).Saw(attempt);
    if (!saw || saw->seen != Seen::kEscaped) return Vacuous(std::string(attempt) + " does nothing here");
  }
  ::unsetenv("CAISSON_CHANGED");

  size_t tried = 0;
  const auto fault = [&](const std::string& attempt) -> std::string {
    ++tried;
    const Outcome outcome = host.Run({.command = {kProgram, "--probe", attempt},
                                      .flags = {"--image", "hostile"},
                                      .env = {{"CAISSON_MARK", mark}},
                                      .with_probe = false});
    const auto saw = outcome.Saw(attempt);
    if (saw && saw->seen != Seen::kBlocked) return attempt + ": " + saw->detail;
    if (!saw && outcome.process.exit_code != 125) return attempt + " did not report: " + outcome.process.err;
    return "";
  };
  for (const char* attempt : {"H19/see", "H19/change", "H19/become"}) {
    if (const std::string found = fault(attempt); !found.empty()) return Broken(found);
  }
  // Mount points that have become links since the store listed them.
  for (const char* name : {"opt", "srv"}) {
    const std::string directory = fs::path(mark).parent_path();
    const std::string up = "../../../../../../../../../../../..";
    // The kernel refuses an unprivileged clone of a mount with others on it, so "/" alone would prove little.
    for (const std::string& target :
         {directory, up + directory, "/proc/self/root" + directory, "/proc/self/cwd/" + up + directory,
          std::string("/"), up, std::string("/proc/1/root"), std::string("usr/../../..")}) {
      if (!store.Replace(name, target)) return Vacuous("the tree cannot be changed");
      const std::string found = fault("H19/see");
      store.PutBack(name);
      if (!found.empty()) return Broken(std::string(name) + " is a link to " + target + ": " + found);
    }
  }
  const std::string before = ReadText(store.Tree() + "/opt/file");
  if (before != "x\n") return Broken("the image's tree was changed");
  return Held(std::to_string(tried) + " runs from a hostile image saw and changed nothing");
}

const Registration kRow(Row{
    .id = "H19",
    .title = "hostile images: links in place of directories, set-id programs, planted /etc, writes to the shared tree",
    .severity = Severity::kEscape,
    .walls = {"image entries are opened without following links", "images are mounted read-only"},
    .attempts = {{.name = "see", .probe = SeeHost, .judge_only = true},
                 {.name = "change", .probe = Change, .judge_only = true},
                 {.name = "become", .probe = Become, .judge_only = true}},
    .judge = JudgeImages,
});

}  // namespace

}  // namespace caisson::escape
