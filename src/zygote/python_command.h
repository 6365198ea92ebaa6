// Parses the python3 command lines that a running interpreter can serve: a file, a module or a text, with -I, -B and -S
// in front. All others start a new python3.
#pragma once

#include <string>
#include <vector>

namespace caisson::zygote {

struct PythonCommand {
  enum class Kind { kNone, kFile, kModule, kText };
  Kind kind = Kind::kNone;  // kNone: start a new python3
  std::string target;       // the file as given, the module's name, or the text
  std::vector<std::string> arguments;
  bool isolated = false;          // -I
  bool no_bytecode = false;       // -B
  bool no_site_packages = false;  // -S
};

PythonCommand ReadPythonCommand(const std::vector<std::string>& argv);

// The variables of `environment` (KEY=value) that an interpreter, or a library it loads, reads when it starts. A
// running interpreter can serve a command only if these variables have the values it was started with. Sorted.
std::vector<std::string> StartVariables(const std::vector<std::string>& environment);

}  // namespace caisson::zygote
