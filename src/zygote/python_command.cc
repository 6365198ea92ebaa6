#include "zygote/python_command.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace caisson::zygote {

namespace {

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// Takes "-I", "-SB" and the like; false for anything else.
bool TakeFlags(std::string_view word, PythonCommand& command) {
  if (word.size() < 2 || word[0] != '-') return false;
  for (const char letter : word.substr(1)) {
    if (letter != 'I' && letter != 'B' && letter != 'S') return false;
  }
  for (const char letter : word.substr(1)) {
    bool& flag = letter == 'I' ? command.isolated : letter == 'B' ? command.no_bytecode : command.no_site_packages;
    flag = true;
  }
  return true;
}

}  // namespace

PythonCommand ReadPythonCommand(const std::vector<std::string>& argv) {
  PythonCommand command;
  size_t next = 1;
  while (next < argv.size() && TakeFlags(argv[next], command)) ++next;
  if (next == argv.size()) return {};
  const std::string& word = argv[next];
  if (word == "-c" || word == "-m") {
    if (++next == argv.size()) return {};
    command.kind = word == "-c" ? PythonCommand::Kind::kText : PythonCommand::Kind::kModule;
  } else if (word[0] != '-' && EndsWith(word, ".py")) {
    // python3 starts a directory or an archive differently; a name with this ending is rarely one, so it is checked.
    command.kind = PythonCommand::Kind::kFile;
  } else {
    return {};
  }
  command.target = argv[next];
  command.arguments.assign(argv.begin() + static_cast<std::ptrdiff_t>(next) + 1, argv.end());
  return command;
}

std::vector<std::string> StartVariables(const std::vector<std::string>& environment) {
  constexpr std::array<std::string_view, 11> kPrefixes = {"PYTHON", "LANG",      "LC_",  "LD_",  "MALLOC_", "GLIBC_",
                                                          "OMP_",   "OPENBLAS_", "MKL_", "NPY_", "OPENSSL_"};
  std::vector<std::string> found;
  for (const std::string& variable : environment) {
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](auto prefix) { return StartsWith(variable, prefix); }))
      found.push_back(variable);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace caisson::zygote
