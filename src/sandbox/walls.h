// The walls around PID 1 as the kernel shows them from outside, read when PID 1 is ready. A set-up step that ran is no
// evidence that its wall stands; this reading is.
//
// Runs: supervisor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

struct Walls {
  std::vector<std::string> namespaces;  // those that differ from the supervisor's
  bool no_new_privileges = false;
  bool filter = false;        // a seccomp filter is installed
  uint64_t capabilities = 0;  // in any of its sets, the bounding set included
  uid_t host_uid = 0;         // its user outside
  bool read_only_root = false;
  int64_t most_open_files = 0;  // the hard limit, as a sample for all limits that are set with it
};

// Reads the supervisor's own namespaces, once in a process. A call ahead of a run keeps the reading out of the start
// time.
void RememberOwnNamespaces();

// `root` is the root of the sandbox.
Result<Walls> ReadWalls(pid_t pid, int root);

// The first wall that every sandbox of this Spec must have and this one lacks; empty when all stand.
std::string FindMissingWall(const Walls& walls, const Spec& spec);

}  // namespace caisson::sandbox
