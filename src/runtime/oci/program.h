// Runs a container program (runc, crun, runsc) without a shell. Safe in a process with several threads: between fork
// and exec there are only system calls.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::runtime::oci {

// A mount to make before the program is executed, in a mount namespace that it and its containers alone see, so that no
// mount appears on the host and all of them vanish with the container.
struct PrivateMount {
  enum class Kind { kTmpfs, kTree, kOverlay };
  Kind kind = Kind::kTmpfs;
  std::string target;   // exists
  std::string options;  // kTmpfs, kOverlay
  UniqueFd tree;        // kTree: a detached mount
  // kTmpfs: without nosuid and nodev, which a program in a user namespace could not keep when it mounts the tree again.
  bool plain = false;
  // kTmpfs: what to create in it; directories belong to `owner`.
  struct Directory {
    std::string path;
    mode_t mode = 0755;
  };
  struct Link {
    std::string path, target;
  };
  struct File {
    std::string path, text;
  };
  std::vector<Directory> directories;
  std::vector<Link> links;
  std::vector<File> files;  // small, world-readable
  uid_t owner = 0;
};

struct ProgramStreams {
  int input = -1, output = -1;  // -1: /dev/null
};

// Looks in the directories of programs for administrators and users; empty when it is in none.
std::string FindProgram(const std::vector<std::string>& names);

// Runs the program until it ends; false when its exit code is not 0. Killed, with an error, after `within_ms`.
Result<bool> RunProgram(const std::vector<std::string>& arguments, const ProgramStreams& streams,
                        const std::vector<PrivateMount>& mounts, int64_t within_ms);

}  // namespace caisson::runtime::oci
