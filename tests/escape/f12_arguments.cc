// Arguments, environments and names of absurd size, and scripts that are their own interpreter: each must
// end as a plain refusal or a plain failure, before or in the sandbox.
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

json Request(json check) {
  check["name"] = "check";
  check["tier"] = "run";
  return {{"source", {{"files", {{"file", "text"}}}}}, {"checks", {std::move(check)}}};
}

json Many(size_t count, size_t size) {
  json list = {"true"};
  for (size_t i = 0; i < count; ++i) list.push_back(std::string(size, 'x'));
  return list;
}

// Refused before anything ran (2 or 3), or a failed check; never our own error, never without a document.
std::string FaultIn(const Outcome& run) {
  if (run.process.timed_out) return "Caisson did not end";
  if (run.process.exit_code == 2 || run.process.exit_code == 3)
    return run.process.err.size() + run.process.out.size() < 65536 ? "" : "the refusal repeats what it refuses";
  if (!run.result) return "no document: " + run.process.err.substr(0, 200);
  return run.result->status == "fail" ? "" : "status " + run.result->status + " " + run.result->message;
}

// Executables that name each other as interpreters, more often than the kernel follows.
std::string MakeLoop(Host& host) {
  const std::string directory = host.MakeDirectory();
  for (int i = 0; i < 8; ++i) {
    const std::string path = directory + "/loop" + std::to_string(i);
    std::ofstream(path) << "#!/workspace/loop" << (i + 1) % 8 << "\n";
    ::chmod(path.c_str(), 0755);
  }
  ::chmod(directory.c_str(), 0755);
  return directory;
}

Judgement JudgeAll(Host& host) {
  const Outcome control =
      host.Verify(Request({{"argv", {"true", "x"}}, {"env", {{"A", "x"}}}, {"cwd", "/tmp"}}).dump());
  if (!control.result || control.result->status != "pass")
    return Vacuous("an ordinary request does not pass: " + control.process.err + control.process.out);
  json loop = Request({{"argv", {"/workspace/loop0"}}});
  loop["source"] = {{"path", MakeLoop(host)}};
  const std::pair<const char*, json> cases[] = {
      {"one argument of 200 KB", Request({{"argv", {"true", std::string(200'000, 'x')}}})},
      {"arguments of 8 MB", Request({{"argv", Many(80, 100'000)}})},
      {"a million arguments", Request({{"argv", Many(1'000'000, 1)}})},
      {"a variable of 200 KB", Request({{"argv", {"true"}}, {"env", {{"A", std::string(200'000, 'x')}}}})},
      {"a directory name of 5000 bytes", Request({{"argv", {"true"}}, {"cwd", "/" + std::string(5000, 'd')}})},
      {"a directory 2000 levels down", Request({{"argv", {"true"}},
                                                {"cwd",
                                                 [] {
                                                   std::string path;
                                                   for (int i = 0; i < 2000; ++i) path += "/d";
                                                   return path;
                                                 }()}})},
      {"scripts that interpret each other", std::move(loop)},
  };
  for (const auto& [name, request] : cases) {
    if (const std::string fault = FaultIn(host.Verify(request.dump())); !fault.empty())
      return Broken(std::string(name) + ": " + fault);
  }
  // The same through a command line, as long as the kernel lets one be.
  SandboxRequest arguments{.command = {"true"}};
  for (int i = 0; i < 12; ++i) arguments.command.push_back(std::string(100'000, 'x'));
  const Outcome run = host.Run(arguments);
  if (run.process.timed_out || (run.process.exit_code != 125 && run.process.exit_code != 126))
    return Broken("1.2 MB of arguments: " + run.process.err.substr(0, 200));
  return Held("refused, or an ordinary failure");
}

const Registration kRow(Row{
    .id = "F12",
    .title = "giant arguments, environments and names; scripts in a circle",
    .severity = Severity::kSelfDenial,
    .walls = {"request limits"},
    .judge = JudgeAll,
});

}  // namespace

}  // namespace caisson::escape
