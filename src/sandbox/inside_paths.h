// Answers, for the record, which file a path of the workload's means. Works on the sandbox's own tree from outside;
// never opens a file's contents, so a FIFO or a device cannot block or bite.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/unique_fd.h"

namespace caisson::sandbox {

class InsidePaths {
 public:
  explicit InsidePaths(UniqueFd root) : root_(std::move(root)) {}

  struct Resolved {
    std::string path;  // absolute inside; symbolic links resolved as far as they exist
    bool exists = false;
    bool is_file_system = true;  // false for pipes, sockets, memfds and the like
  };

  // `base` is an absolute inside path (the working directory or a directory descriptor's), used when `path` is
  // relative.
  Resolved Resolve(pid_t pid, const std::string& base, const std::string& path, bool follow_last) const;
  // What descriptor `fd` of process `pid` refers to.
  Resolved OfDescriptor(pid_t pid, int fd) const;
  // The inside path of a directory descriptor, or of the working directory for AT_FDCWD; "" when it has none.
  std::string DirectoryOf(pid_t pid, int dir_fd) const;

  int root_fd() const { return root_.get(); }

 private:
  // Component by component, through links only the process itself can follow (/proc/self/cwd).
  Resolved Walk(pid_t pid, const std::string& path, bool follow_last) const;

  UniqueFd root_;
};

// The pid of host process `pid` as seen inside its innermost pid namespace; 0 when it is gone.
pid_t InsidePid(pid_t pid);

// "/a/./b/../c" → "/a/c". Purely textual.
std::string NormalizePath(const std::string& path);
// True when `path` is `prefix` or below it.
bool IsBelow(const std::string& path, const std::string& prefix);

}  // namespace caisson::sandbox
