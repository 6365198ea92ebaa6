// What the root file system of every sandbox has of its own, for runtimes whose walls another program builds.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"

namespace caisson::runtime::witnessed {

struct RootFile {
  std::string path;  // inside
  std::string text;
};

// The files of /etc that native sandboxes have too (sandbox/setup_mounts.cc); `inside_id` is the workload's user. And a
// /proc/stat, where the run has fewer CPUs than the host: programs count CPUs there when there is no /sys.
Result<std::vector<RootFile>> MakeRootFiles(const policy::RunPlan& plan, uid_t inside_id);

// Directories with loaders for 32 bits that this host has. The filter ends what they load, and tools execute every
// loader that they find executable.
std::vector<std::string> FindOtherLoaders();

}  // namespace caisson::runtime::witnessed
