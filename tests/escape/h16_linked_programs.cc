// A working directory, a program and a script's interpreter that are links of the source to places of the host. Inside
// they must resolve inside, where nothing exists.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

void WriteProgram(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), 0755);
}

Judgement JudgePrograms(Host& host) {
  const PlantedTree tree(host);
  WriteProgram(tree.outside + "/program", "#!/bin/sh\necho OUTSIDE; cat mark\n");
  WriteProgram(tree.source + "/script", "#!" + tree.outside + "/program\n");
  WriteProgram(tree.source + "/linked_script", "#!/workspace/program\n");
  std::ofstream(tree.outside + "/mark") << "OUTSIDE\n";
  tree.Directory("deep");
  tree.Link("program", tree.outside + "/program");
  tree.Link("out", tree.outside);
  tree.Link("deep/out", tree.outside);
  tree.Link("up", "../../../../../../..");
  tree.Link("root", "/proc/self/root");
  tree.Link("init", "/proc/1/root");
  Command bare;
  bare.argv = {tree.source + "/program"};
  bare.directory = tree.source + "/out";
  if (Process::Start(bare).Finish(kPatienceMs).out.find("OUTSIDE\nOUTSIDE") == std::string::npos)
    return Vacuous("a bare program does not get there either");

  const auto before = tree.Names();
  size_t tried = 0;
  std::string fault;
  const auto judge = [&](const std::string& what, const Outcome& outcome) {
    ++tried;
    const std::string& out = outcome.result ? outcome.result->stdout_text + outcome.process.out : outcome.process.out;
    if (out.find("OUTSIDE") != std::string::npos) fault = what + " got outside";
    if (outcome.process.exit_code == 0) fault = what + " ended well";
    if (const std::string changed = Difference(before, tree.Names()); !changed.empty())
      fault = what + " changed the host:" + changed;
    return fault.empty();
  };
  std::vector<std::string> programs = {"/program", "/out/program", "/deep/out/program", "/script", "/linked_script"};
  std::vector<std::string> directories = {"/out", "/deep/out", "/out/."};
  for (const char* root : {"/up", "/root", "/init"}) {
    programs.push_back(root + tree.outside + "/program");
    directories.push_back(root + tree.outside);
  }
  for (const char* access : {"ro", "cow", "rw"}) {
    for (const std::string& program : programs) {
      const Outcome outcome = host.Run({.command = {"/workspace" + program},
                                        .flags = {"--workspace", tree.source + ":" + access},
                                        .with_probe = false});
      if (!judge("/workspace" + program, outcome)) return Broken(fault);
    }
    for (const std::string& directory : directories) {
      const Outcome outcome =
          host.Run({.command = {"cat", "mark"},
                    .flags = {"--workspace", tree.source + ":" + access, "-w", "/workspace" + directory},
                    .with_probe = false});
      if (!judge("in /workspace" + directory, outcome)) return Broken(fault);
    }
  }
  // A source that is copied in; and the program of a check found by PATH.
  for (const auto& [argv, cwd] : {std::pair{std::vector<std::string>{"/workspace/program"}, "/workspace"},
                                  std::pair{std::vector<std::string>{"./out/program"}, "/workspace"},
                                  std::pair{std::vector<std::string>{"program"}, "/workspace"},
                                  std::pair{std::vector<std::string>{"cat", "mark"}, "/workspace/out"}}) {
    const Outcome outcome = host.Verify(json{{"source", {{"path", tree.source}}},
                                             {"checks",
                                              {{{"name", "c"},
                                                {"tier", "run"},
                                                {"argv", argv},
                                                {"cwd", cwd},
                                                {"env", {{"PATH", "/workspace/out:/workspace:/usr/bin:/bin"}}}}}}}
                                            .dump());
    if (!judge("verify " + argv[0], outcome)) return Broken(fault);
  }
  return Held(std::to_string(tried) + " led nowhere");
}

const Registration kRow(Row{
    .id = "H16",
    .title = "working directory, program and script interpreter through links of the source",
    .severity = Severity::kEscape,
    .walls = {"pivot_root before the first path of a command is looked up"},
    .judge = JudgePrograms,
});

}  // namespace

}  // namespace caisson::escape
