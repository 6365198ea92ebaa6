// Writes the bundle of one run: config.json as policy/render/oci.cc describes it, the files of /etc that a sandbox has
// of its own, and the mounts that the host must not see.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"
#include "runtime/oci/program.h"

namespace caisson::runtime::oci {

struct BundleInput {
  std::string directory;  // exists and is empty but for the program's state
  std::string agent;      // the program
  uid_t first_host_id = 0;
  std::string cgroup;
  int64_t workspace_bytes = 0;  // of the files of the workspace
  // For runsc. The files of the workspace are then written here and not by the agent, because gVisor cannot make a file
  // system read-only that was writable.
  bool gvisor = false;
  std::vector<policy::PlannedFile> workspace_files;
  int64_t group_memory_bytes = 0, group_processes = 0;  // of the cgroup, where they are not the plan's
};

struct WrittenBundle {
  // To make before the container program starts. Every file of the host that the plan names is mounted by the
  // descriptor that policy judged, never by its path.
  std::vector<PrivateMount> mounts;
  UniqueFd scratch;  // with gvisor: the file system of the writable places, one directory each
};

Result<WrittenBundle> WriteBundle(const policy::RunPlan& plan, const BundleInput& input);

}  // namespace caisson::runtime::oci
