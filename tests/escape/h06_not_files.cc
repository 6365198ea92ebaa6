// A FIFO, a socket, a device or a directory where a file is expected: opening a FIFO waits for ever.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

const char kProgram[] = R"(
import os, socket
os.chdir('/scratch')
os.mkfifo('fifo.txt')
socket.socket(socket.AF_UNIX).bind('socket.txt')
os.mkdir('directory.txt')
os.mkdir('closed'); open('closed/in.txt', 'w').write('x'); os.chmod('closed', 0)
open('unreadable.txt', 'w').write('x'); os.chmod('unreadable.txt', 0)
open('good.txt', 'w').write('good')
)";

Judgement JudgeTypes(Host& host) {
  const std::string fifo = host.MakeDirectory() + "/fifo";
  ::mkfifo(fifo.c_str(), 0600);
  const Ended careless = InChild([&] { return ::open(fifo.c_str(), O_RDONLY | O_CLOEXEC); }, 1);
  if (careless.signal != SIGALRM) return Vacuous("even a careless reader does not hang");
  const json request = {{"source", {{"files", {{"file", "x"}}}}},
                        {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"python3", "-I", "-c", kProgram}}}}},
                        {"artifacts", {"/scratch/**"}}};
  const Outcome run = host.Verify(request.dump());
  if (run.process.timed_out) return Broken("the collector hangs");
  if (!run.result || run.result->status != "pass")
    return Broken("the run failed: " + run.process.err + run.process.out);
  const json document = json::parse(run.result->text);
  bool good = false;
  for (const json& artifact : document["artifacts"]) {
    const std::string path = artifact["path"];
    good = good || path == "/scratch/good.txt";
    // A file without read permission; root may read it, and it is a regular file.
    if (path != "/scratch/good.txt" && path != "/scratch/closed/in.txt" && path != "/scratch/unreadable.txt")
      return Broken("collected: " + path);
  }
  if (!good) return Broken("the regular file was not collected");
  const std::string skipped = document["skipped_artifacts"].dump();
  for (const char* name : {"fifo.txt", "socket.txt"}) {
    if (skipped.find(std::string("/scratch/") + name + ": not a regular file") == std::string::npos)
      return Broken(std::string(name) + " is not named as left out: " + skipped);
  }
  return Held("only regular files were read");
}

const Registration kRow(Row{
    .id = "H06",
    .title = "FIFOs, sockets and directories instead of artifacts",
    .severity = Severity::kPeerDenial,
    .walls = {"collector"},
    .judge = JudgeTypes,
});

}  // namespace

}  // namespace caisson::escape
