// caisson selftest: executes caisson-selftest, a separate program because attack code does not belong into the program
// under test.
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"

namespace caisson::cli {

namespace {

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  return std::string(path, size > 0 ? static_cast<size_t>(size) : 0);
}

}  // namespace

int SelftestCommand(std::vector<std::string> arguments) {
  const std::string self = OwnPath();
  const std::string directory = self.substr(0, self.rfind('/'));
  for (const char* place : {"/caisson-selftest", "/../libexec/caisson/caisson-selftest"}) {
    const std::string program = directory + place;
    if (::access(program.c_str(), F_OK) != 0) continue;
    // The caller's --caisson, if any, comes later and wins.
    std::vector<std::string> words = {program, "--caisson", self};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    Complain(program + ": " + std::strerror(errno));
    return kExitInfrastructure;
  }
  Complain("selftest: caisson-selftest is not installed, neither in " + directory + " nor in " + directory +
           "/../libexec/caisson; install it or build the target caisson-selftest");
  return kExitInfrastructure;
}

}  // namespace caisson::cli
