// Leftovers of a workload must be removed without trusting them: links to other places, directories that may not be
// entered, deep trees; and files that it may write on the host must not become a tool there.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

namespace fs = std::filesystem;

const char kLeave[] = R"(
import os, sys
victim = sys.argv[1]
for place in ('/scratch', '/tmp', '/workspace'):
    os.chdir(place)
    os.symlink(victim, 'link'); os.symlink(victim + '/file', 'file'); os.symlink('/', 'root')
    os.makedirs('closed/in'); os.chmod('closed/in', 0); os.chmod('closed', 0)
    for name in ('-rf', 'new\nline', '\033[31m', 'é' * 100, '\udcff', '*', '..a', ' '):
        os.mkdir(name)
    for i in range(500):
        os.mkdir('d'); os.chdir('d')
)";

// On a directory of the host that the workload may write to.
const char kMakeTools[] = R"(
import mmap, os, shutil
shutil.copyfile('/usr/bin/env', 'tool')
for mode in (0o4755, 0o2755, 0o6777):
    try: os.chmod('tool', mode)
    except OSError: pass
# With the bits from the beginning, and then filled in every way that might leave them.
def fill(name, how):
    try:
        fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o6755)
        how(fd)
        os.close(fd)
    except (OSError, ValueError): pass
def by_mapping(fd):
    os.ftruncate(fd, 4096)
    mmap.mmap(fd, 4096)[:4] = b'#!/x'
def by_copying(fd):
    source = os.open('/usr/bin/env', os.O_RDONLY)
    os.copy_file_range(source, fd, 4096)
fill('made', lambda fd: None)
fill('written', lambda fd: os.write(fd, b'#!/bin/sh'))
fill('mapped', by_mapping)
fill('copied', by_copying)
fill('sent', lambda fd: os.sendfile(fd, os.open('/usr/bin/env', os.O_RDONLY), 0, 4096))
fill('allocated', lambda fd: os.posix_fallocate(fd, 0, 4096))
try: os.mkdir('shared', 0o2777); os.chmod('shared', 0o2777)
except OSError: pass
for device in ((1, 1), (8, 0)):
    try: os.mknod('device', 0o060666, os.makedev(*device))
    except OSError: pass
)";

std::string Snapshot(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return "gone";
  return std::to_string(info.st_mode) + " " + std::to_string(info.st_uid) + " " + std::to_string(info.st_ctim.tv_sec) +
         "." + std::to_string(info.st_ctim.tv_nsec);
}

Judgement JudgeTools(Host& host) {
  const std::string directory = host.MakeDirectory();
  ::chmod(directory.c_str(), 0777);
  const Outcome run = host.Run({.command = {"python3", "-I", "-c", kMakeTools},
                                .flags = {"--workspace", directory + ":rw"},
                                .with_probe = false});
  if (!run.result || !fs::exists(directory + "/tool"))
    return Vacuous("a workload cannot write to the host here: " + run.process.err);
  for (const auto& entry : fs::directory_iterator(directory)) {
    struct stat info {};
    ::lstat(entry.path().c_str(), &info);
    // An empty one is no program, and writing to it takes the bits away.
    const bool runs_as_owner = S_ISREG(info.st_mode) && (info.st_mode & (S_ISUID | S_ISGID)) != 0 && info.st_size > 0;
    if (runs_as_owner || S_ISBLK(info.st_mode) || S_ISCHR(info.st_mode))
      return Broken("left on the host: " + entry.path().filename().string() + " of user " +
                    std::to_string(info.st_uid));
  }
  if (run.result->Find("SyscallViolation", "fs.setid") == nullptr ||
      run.result->Find("SyscallViolation", "fs.device") == nullptr)
    return Broken("making tools is not reported");
  return Held("cleaned away without a trace; no tool was left on the host");
}

Judgement JudgeCleaning(Host& host) {
  const std::string victim = host.MakeDirectory(), workspace = host.MakeDirectory();
  std::ofstream(victim + "/file") << "theirs";
  ::chmod(workspace.c_str(), 0777);
  // Careless: a recursive chmod that follows.
  const std::string naive = host.MakeDirectory();
  (void)!::symlink((victim + "/file").c_str(), (naive + "/link").c_str());
  ::chmod((victim + "/file").c_str(), 0600);
  ::chmod((naive + "/link").c_str(), 0644);
  struct stat info {};
  if (::stat((victim + "/file").c_str(), &info) != 0 || (info.st_mode & 07777) != 0644)
    return Vacuous("even a careless chmod follows no link");

  const std::string file = Snapshot(victim + "/file"), directory = Snapshot(victim);
  const int64_t start = NowMs();
  for (const char* access : {":cow", ":rw"}) {
    const Outcome run = host.Run({.command = {"python3", "-I", "-c", kLeave, victim},
                                  .flags = {"--workspace", workspace + access, "--timeout", "170s"},
                                  .with_probe = false});
    if (!run.result || run.result->status != "pass")
      return Broken(std::string(access) + ": " + (run.result ? run.result->failure_class : "no result") +
                    run.process.err);
    if (Snapshot(victim + "/file") != file || Snapshot(victim) != directory || ReadText(victim + "/file") != "theirs")
      return Broken(std::string(access) + ": what a link leads to was changed");
    if (access == std::string(":cow") && !fs::is_empty(workspace)) return Broken("cow wrote to the host");
  }
  if (NowMs() - start > kPatienceMs) return Broken("cleaning up does not end");
  // The test, as the owner, removes the files that an rw mount left.
  Process::Start({.argv = {"chmod", "-R", "u+rwx", workspace}}).Finish(kPatienceMs);
  return JudgeTools(host);
}

const Registration kRow(Row{
    .id = "H11",
    .title = "links, closed and deep directories to clean; tools left behind",
    .severity = Severity::kEscape,
    .walls = {"scratch goes with its mount", "nosuid"},
    .judge = JudgeCleaning,
});

}  // namespace

}  // namespace caisson::escape
