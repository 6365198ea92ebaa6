// Sources that attack the program which copies them. A directory stands for an unpacked archive: links out of it,
// FIFOs, devices, giants, depths.
//
// SAFETY: the giant is a hole.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

// Reads every file it is shown and reports what it found.
const char kReadAll[] = R"(
import os, stat, sys
kinds = set()
for top, directories, files in os.walk('/workspace', followlinks=False):
    for name in files + directories:
        path = os.path.join(top, name)
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)): print('SPECIAL', name)
        if stat.S_IMODE(mode) & 0o6000: print('SETUID', name)
        if stat.S_ISDIR(mode): continue
        try:
            with open(path, 'rb') as file: sys.stdout.write(file.read(65536).decode('utf-8', 'replace'))
        except OSError: pass
print('DONE')
)";

json Request(const std::string& path) {
  return {{"source", {{"path", path}}},
          {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "-c", kReadAll}}}}}};
}

std::string MakeSource(Host& host) {
  const std::string directory = host.MakeDirectory();
  ::chmod(directory.c_str(), 0755);
  std::ofstream(directory + "/main.py") << "print('ordinary')\n";
  return directory;
}

// Links and special files; their targets must not appear inside.
std::string FaultInEntries(Host& host) {
  const std::string secret = "nobody inside may see this", canary = host.WriteFile("secret", secret);
  const std::string directory = MakeSource(host);
  (void)!::symlink(canary.c_str(), (directory + "/absolute").c_str());
  (void)!::symlink(("../../../../../.." + canary).c_str(), (directory + "/relative").c_str());
  (void)!::symlink("/", (directory + "/root").c_str());
  (void)!::symlink("circle", (directory + "/circle").c_str());
  ::mkfifo((directory + "/fifo.py").c_str(), 0666);
  ::mknod((directory + "/device.py").c_str(), S_IFCHR | 0666, makedev(1, 5));  // root only
  std::ofstream(directory + "/setuid.sh") << "#!/bin/sh\n";
  ::chmod((directory + "/setuid.sh").c_str(), 06755);
  std::ofstream(directory + "/new\nline \033[31m -rf \xff.py") << "x = 1\n";
  if (ReadText(directory + "/absolute").find(secret) == std::string::npos) return "vacuous";
  const Outcome run = host.Verify(Request(directory).dump());
  if (run.process.timed_out) return "taking in a FIFO does not end";
  if (!run.result || run.result->stdout_text.find("DONE") == std::string::npos)
    return "hostile entries: " + run.process.err + run.process.out.substr(0, 400);
  for (const std::string& mark : {secret, std::string("SPECIAL"), std::string("SETUID")}) {
    if (run.result->stdout_text.find(mark) != std::string::npos) return "inside was found: " + mark;
  }
  return "";
}

std::string FaultInDepth(Host& host) {
  const std::string directory = MakeSource(host);
  std::string path = directory;
  for (int i = 0; i < 300; ++i) ::mkdir((path += "/d").c_str(), 0755);
  const Outcome run = host.Verify(Request(directory).dump());
  return run.process.exit_code == 2 || run.process.exit_code == 3 ? "" : "a tree of 300 levels is not refused";
}

// Two tebibytes that take no room: they must not be read.
std::string FaultInGiant(Host& host) {
  const std::string directory = MakeSource(host);
  const UniqueFd giant(::open((directory + "/giant").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (::ftruncate(giant.get(), 2L << 40) != 0) return "";
  const Outcome run = host.Verify(Request(directory).dump());
  if (run.process.timed_out) return "taking in a hole of 2 TiB does not end";
  return run.process.exit_code == 2 || run.process.exit_code == 3 ? "" : "a hole of 2 TiB is not refused";
}

std::string FaultInArchives(Host& host) {
  const std::string hash(64, 'a');
  const std::string archive = MakeSource(host) + "/source.tar";
  std::ofstream(archive) << "../../escape";
  for (const json& source :
       {json{{"archive", "sha256:" + hash}}, json{{"archive", {{"sha256", hash}, {"format", "zip"}}}},
        json{{"archive", archive}}, json{{"archive", "sha256:../../../etc/passwd"}}, json{{"files", {{"../x", "x"}}}},
        json{{"files", {{"/etc/x", "x"}}}}, json{{"files", {{"a", "x"}, {"a/b", "x"}}}},
        json{{"files", {{"a/./b", "x"}}}}, json{{"files", {{std::string("a\0b", 3), "x"}}}}}) {
    json request = Request("");
    request["source"] = source;
    const Outcome run = host.Verify(request.dump());
    if (run.process.exit_code != 2 && run.process.exit_code != 3) return "not refused: " + source.dump();
  }
  return "";
}

Judgement JudgeSources(Host& host) {
  const Outcome control = host.Verify(Request(MakeSource(host)).dump());
  if (!control.result || control.result->stdout_text.find("ordinary") == std::string::npos)
    return Vacuous("an ordinary source does not run: " + control.process.err);
  for (auto* fault_in : {FaultInEntries, FaultInDepth, FaultInGiant, FaultInArchives}) {
    const std::string fault = fault_in(host);
    if (fault == "vacuous") return Vacuous("even a careless reader does not get the file");
    if (!fault.empty()) return Broken(fault);
  }
  return Held("archives are refused; links lead nowhere, giants and depths are refused");
}

const Registration kRow(Row{
    .id = "H08",
    .title = "hostile sources: archives, links, devices, depths, giants, names",
    .severity = Severity::kEscape,
    .walls = {"snapshot", "request limits", "private root"},
    .judge = JudgeSources,
});

}  // namespace

}  // namespace caisson::escape
