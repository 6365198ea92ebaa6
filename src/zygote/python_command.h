// What a command line asks of python3, as far as a running interpreter can take it up without having been started for
// it: a file, a module or a text, with -I, -B and -S in front. Everything else is left to a python3 of its own.
#pragma once

#include <string>
#include <vector>

namespace caisson::zygote {

struct PythonCommand {
  enum class Kind { kNone, kFile, kModule, kText };
  Kind kind = Kind::kNone;  // kNone: not for us
  std::string target;       // the file as given, the module's name, or the text
  std::vector<std::string> arguments;
  bool isolated = false;          // -I
  bool no_bytecode = false;       // -B
  bool no_site_packages = false;  // -S
};

PythonCommand ReadPythonCommand(const std::vector<std::string>& argv);

// The variables of `environment` (KEY=value) that an interpreter, or a library it loads, reads when it starts. A
// running one can serve a command only if they are those it was started with. Sorted.
std::vector<std::string> StartVariables(const std::vector<std::string>& environment);

}  // namespace caisson::zygote
