// One virtual machine: QEMU and the process that serves its files, both behind walls of their own. They have their own
// user, process, mount, network, IPC, host-name and cgroup namespaces and a range of host ids that no other sandbox
// has; they see programs and libraries, the shown trees and nothing else, and cannot write anything but the mounts that
// the plan makes writable. QEMU has another user there than the file server, no capability, and its own filter.
//
// An init process holds both: when one of them ends, or the caller dies, it ends and the kernel ends everything with
// it.
//
// Runs: the process that starts runs. One thread: the parent-death signal is tied to the thread that called Start.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/host_resources.h"

namespace caisson::runtime::microvm {

// A part of the host that the machine sees read-only at the same place.
struct ShownPath {
  enum class Kind { kDirectory, kFile, kLink };
  Kind kind = Kind::kDirectory;
  std::string path;         // absolute
  std::string link_target;  // kLink
};

struct MachinePlan {
  std::string qemu, file_server;  // programs
  bool kvm = false;               // else the processor is emulated
  int64_t memory_bytes = 0;       // of the machine
  int64_t cpus = 1;
  UniqueFd kernel, initramfs;    // files in memory
  std::vector<ShownPath> shown;  // parents before children
  std::vector<UniqueFd> mounts;  // detached trees, shown below "mounts"
  std::vector<bool> mounts_are_directories;
};

class Machine {
 public:
  // `port` is the runtime's end of the machine's port; `resources` were prepared for this machine.
  static Result<std::unique_ptr<Machine>> Start(MachinePlan plan, sandbox::HostResources resources, UniqueFd port);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Ends everything and waits until it is gone.
  void Kill();
  pid_t pid() const { return pid_; }  // of the init process
  // The last words of QEMU, the file server and the machine's console.
  std::string ReadLog() const;
  const sandbox::HostResources& resources() const { return resources_; }

 private:
  explicit Machine(sandbox::HostResources resources) : resources_(std::move(resources)) {}
  Status Create(MachinePlan plan, UniqueFd port);

  sandbox::HostResources resources_;
  UniqueFd log_;
  UniqueFd alive_;  // its other end is the init process's, which ends without us
  UniqueFd process_;
  pid_t pid_ = -1;
};

}  // namespace caisson::runtime::microvm
