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
  int64_t workspace_bytes = 0;  // of the files that the agent will write
};

// The mounts to make before the container program starts. Every file of the host that the plan names is mounted by the
// descriptor that policy judged, never by its path.
Result<std::vector<PrivateMount>> WriteBundle(const policy::RunPlan& plan, const BundleInput& input);

}  // namespace caisson::runtime::oci
