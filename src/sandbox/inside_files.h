// The files of a running sandbox, as its user sees them, for a supervisor that copies files in and out.
//
// SECURITY: the workload shapes every path and can change it at any moment. Each look-up is one openat2 with
// RESOLVE_IN_ROOT: absolute links and ".." stay in the sandbox's tree, and the kernel decides, not a check before the
// use. Magic links (/proc/PID/root) are refused. The supervisor acts with the file-system rights of the sandbox's user,
// and opens only regular files and directories, without blocking.
//
// Runs: supervisor.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/live_command.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::sandbox {

class InsideFiles {
 public:
  // `root` is borrowed. `owner` is the sandbox's user outside, where that is not the caller.
  InsideFiles(int root, std::optional<uid_t> owner) : root_(root), owner_(owner) {}

  // Every path is absolute, inside.
  Result<UniqueFd> Open(const std::string& path, OpenFor use, mode_t mode) const;
  Result<InsideFileInfo> Stat(const std::string& path) const;
  Result<std::vector<InsideFileInfo>> List(const std::string& path) const;
  Status MakeDirectories(const std::string& path, mode_t mode) const;
  Status MakeLink(const std::string& path, const std::string& target) const;
  Status Remove(const std::string& path) const;

 private:
  struct Place {
    UniqueFd parent;
    std::string name;
  };
  // The directory that holds the last component, and that component, which is never ".." or empty.
  Result<Place> Find(const std::string& path) const;
  UniqueFd Resolve(const std::string& path, int flags, mode_t mode = 0) const;
  // Describes an entry of the directory `parent`; `path` is its path inside.
  InsideFileInfo Describe(int parent, const std::string& path, std::string name, const struct stat& info) const;

  int root_;
  std::optional<uid_t> owner_;
};

}  // namespace caisson::sandbox
