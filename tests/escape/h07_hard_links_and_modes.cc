// Artifacts that are another file by a second name, or carry more than bytes: set-user-id bits, attributes, owners.
#include <sys/stat.h>
#include <sys/xattr.h>
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

// Refused, and so never an artifact: names of files that are not the workload's.
const char kProgram[] = R"(
import os, subprocess
os.chdir('/scratch')
for source in ('/usr/bin/env', '/workspace/file', '/etc/passwd'):
    try:
        os.link(source, 'foreign')
        print('LINKED', source)
    except OSError: pass
open('one', 'w').write('two names'); os.link('one', 'two')
open('setuid', 'w').write('set-user-id'); os.chmod('setuid', 0o1777)
try: os.chmod('setuid', 0o6777)
except OSError: pass
try: os.setxattr('setuid', 'user.note', b'x')
except OSError: pass
)";

Judgement JudgeStored(Host& host) {
  const std::string directory = host.MakeDirectory();
  std::ofstream(directory + "/setuid") << "x";
  ::chmod((directory + "/setuid").c_str(), 06777);
  ::link((directory + "/setuid").c_str(), (directory + "/second").c_str());
  struct stat info {};
  if (::stat((directory + "/second").c_str(), &info) != 0 || info.st_nlink != 2 || (info.st_mode & 07000) == 0)
    return Vacuous("even bare there are no such files");
  const json request = {{"source", {{"files", {{"file", "x"}}}}},
                        {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "-c", kProgram}}}}},
                        {"artifacts", {"/scratch/**"}}};
  const std::string stored = host.MakeDirectory() + "/stored";
  const Outcome run = host.Verify(request.dump(), {"--artifacts", stored});
  if (!run.result || run.result->stdout_text.find("LINKED") != std::string::npos)
    return Broken("a foreign file got a second name: " + run.process.err + run.process.out);
  const json document = json::parse(run.result->text);
  if (document["artifacts"].size() != 1 || document["artifacts"][0]["path"] != "/scratch/setuid")
    return Broken("collected: " + document["artifacts"].dump());
  for (const auto& entry : std::filesystem::directory_iterator(stored)) {
    const std::string path = entry.path();
    ::lstat(path.c_str(), &info);
    if (!S_ISREG(info.st_mode) || (info.st_mode & 07133) != 0 || info.st_nlink != 1 || info.st_uid != ::geteuid())
      return Broken("stored with more than bytes");
    if (::listxattr(path.c_str(), nullptr, 0) > 0) return Broken("stored with attributes");
  }
  return Held("bytes only");
}

const Registration kRow(Row{
    .id = "H07",
    .title = "hard links as artifacts; set-user-id bits and attributes on them",
    .severity = Severity::kHostLeak,
    .walls = {"collector", "scratch is a file system of its own"},
    .judge = JudgeStored,
});

}  // namespace

}  // namespace caisson::escape
