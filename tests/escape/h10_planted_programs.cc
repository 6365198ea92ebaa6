// Programs and settings planted in the source, for a supervisor that runs git, tar or python in it, or by a PATH that
// leads there.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPrograms[] = {"git",     "tar",     "xz",    "gzip",        "unzip", "python3",   "python",
                                     "sh",      "bash",    "cp",    "cat",         "id",    "newuidmap", "newgidmap",
                                     "mount",   "umount",  "sudo",  "env",         "ls",    "make",      "pytest",
                                     "setpriv", "unshare", "chown", "fusermount3", "rm",    "mkdir"};

void PlantPrograms(const std::string& directory, const std::string& marker) {
  for (const char* name : kPrograms) {
    std::ofstream(directory + "/" + name) << "#!/bin/sh\necho PLANTED\necho " << name << " >> " << marker << "\n";
    ::chmod((directory + "/" + name).c_str(), 0755);
  }
  std::ofstream(directory + "/Makefile") << "$(shell touch " << marker << ")\nall:\n\ttouch " << marker << "\n";
  fs::create_directories(directory + "/.git/hooks");
  for (const char* hook : {"post-checkout", "pre-commit", "fsmonitor-watchman"}) {
    const std::string path = directory + "/.git/hooks/" + hook;
    std::ofstream(path) << "#!/bin/sh\ntouch " << marker << "\n";
    ::chmod(path.c_str(), 0755);
  }
  std::ofstream(directory + "/.git/config")
      << "[core]\n\tfsmonitor = touch " << marker << "\n\tpager = touch " << marker << "\n";
  std::ofstream(directory + "/.git/HEAD") << "ref: refs/heads/main\n";
  for (const char* module : {"/sitecustomize.py", "/usercustomize.py", "/json.py", "/os.py"})
    std::ofstream(directory + module) << "print('PLANTED')\n";
}

Judgement JudgePlanted(Host& host) {
  const std::string directory = host.MakeDirectory(), marker = host.MakeDirectory() + "/marker";
  PlantPrograms(directory, marker);
  std::ofstream(directory + "/main.py") << "open('/scratch/artifact', 'w').write('x')\n";
  const std::string path = directory + ":" + ::getenv("PATH");
  const auto start = [&](std::vector<std::string> argv) {
    return Process::Start({.argv = std::move(argv), .env = {{"PATH", path}}, .directory = directory})
        .Finish(kPatienceMs);
  };
  start({"env", "git", "status"});
  if (!fs::exists(marker)) return Vacuous("even bare the planted programs are not run");
  fs::remove(marker);

  const std::string caisson = fs::absolute(host.caisson());  // started from elsewhere
  // Before it runs, while it runs, and when its artifacts are taken.
  const json request = {
      {"source", {{"path", directory}}},
      {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "/workspace/main.py"}}}}},
      {"artifacts", {"/scratch/**"}}};
  const std::string file = host.WriteFile("request.json", request.dump());
  for (const std::vector<std::string>& argv :
       {std::vector<std::string>{caisson, "verify", "--json", "--artifacts", host.MakeDirectory(), file},
        {caisson, "run", "--workspace", ".", "--", "true"},
        {caisson, "run", "--workspace", ".:cow", "--", "true"},
        {caisson, "doctor"}}) {
    const Finished run = start(argv);
    if (fs::exists(marker)) return Broken("caisson " + argv[1] + " ran a planted program: " + ReadText(marker));
    if (run.out.find("PLANTED") != std::string::npos)
      return Broken("caisson " + argv[1] + ": a planted program ran inside");
    if (run.timed_out || (argv[1] != "doctor" && run.exit_code != 0))
      return Broken("caisson " + argv[1] + " failed: " + run.err + run.out.substr(0, 200));
  }
  return Held("none was run");
}

const Registration kRow(Row{
    .id = "H10",
    .title = "planted git, tar, python, hooks and settings",
    .severity = Severity::kEscape,
    .walls = {"the supervisor runs nothing", "environment is made up"},
    .judge = JudgePlanted,
});

}  // namespace

}  // namespace caisson::escape
