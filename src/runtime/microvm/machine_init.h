// The init process of a machine's namespaces: builds their file system, starts the file server and QEMU, and ends when
// one of them ends.
//
// Runs: child after clone, then PID 1 of the namespaces. Nothing here allocates: everything is prepared before clone.
#pragma once

#include <string>
#include <vector>

#include "runtime/microvm/machine.h"

namespace caisson::runtime::microvm {

// An argument vector for execve; the strings must stay where they are.
struct ProgramArguments {
  explicit ProgramArguments(std::vector<std::string> words);
  std::vector<std::string> words;
  std::vector<char*> argv;
};

// Where the file server finds the trees that it serves.
inline constexpr char kShare[] = "/share";

struct MachineInit {
  const MachinePlan* plan = nullptr;
  const ProgramArguments* qemu = nullptr;
  const ProgramArguments* file_server = nullptr;
  int go_fd = -1;             // the parent writes a byte when the id maps are there, and keeps its end open
  int log_fd = -1;            // becomes standard error of everything
  int kvm_fd = -1;            // a detached file system with the device; -1: none
  std::vector<int> task_fds;  // of cgroups to join
  std::vector<int> qemu_fds, file_server_fds;  // sorted; what each of them inherits above 2
};

// Does not return. Failures are one line in the log.
[[noreturn]] void RunMachineInit(const MachineInit& init);

}  // namespace caisson::runtime::microvm
