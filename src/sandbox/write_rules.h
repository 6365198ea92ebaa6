// The rules by which an attempt to write is judged: which paths inside a workload may write, and which refused writes
// are harmless. Every observer uses them, so that the same attempt gets the same verdict whichever kernel saw it.
#pragma once

#include <string>
#include <vector>

namespace caisson::sandbox {

struct WriteRules {
  std::vector<std::string> writable;            // inside paths below which writing is allowed
  std::vector<std::string> read_only;           // paths below those where writing is not allowed
  std::vector<std::string> ignored_components;  // a refused write below a component of this name is not counted
};

// `path` is absolute, inside, and has no symbolic link left in it.
bool MayBeWritten(const WriteRules& rules, const std::string& path);

}  // namespace caisson::sandbox
