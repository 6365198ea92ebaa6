// Finds out, for the record, which file a path of the workload refers to. Works on the sandbox's own tree from outside
// and never opens a file's contents, so a FIFO cannot block it and a device cannot cause side effects.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace caisson::sandbox {

class InsidePaths {
 public:
  // `places` are mount points inside: a file that lies deeper than the kernel can name is reported by the place it is
  // in.
  explicit InsidePaths(UniqueFd root, std::vector<std::string> places = {})
      : root_(std::move(root)), places_(std::move(places)) {}

  enum class Presence : uint8_t { kThere, kMissing, kUnknown };

  struct Resolved {
    std::string path;  // absolute inside; symbolic links resolved as far as they exist
    Presence presence = Presence::kUnknown;
    bool is_file_system = true;  // false for pipes, sockets, memfds and the like
    bool named = true;           // false: neither the path nor its place is known
    int error = 0;               // the call fails with this error in any case: EBADF, ELOOP
  };

  // How the process resolves the path.
  struct From {
    pid_t pid;
    int dir_fd;            // or AT_FDCWD
    bool in_root = false;  // as RESOLVE_IN_ROOT: `dir_fd` is the root
  };
  Resolved Resolve(const From& from, const std::string& path, bool follow_last) const;
  // What descriptor `fd` of process `pid` refers to; AT_FDCWD means its working directory.
  Resolved OfDescriptor(pid_t pid, int fd) const;

 private:
  // Walks step by step, from one open directory to the next: for paths that no text can name, and through links that
  // only the process itself can follow (/proc/self/cwd). Takes time linear in the length of the path.
  Resolved Walk(const From& from, const std::string& path, bool follow_last) const;
  Resolved NameOf(int fd) const;

  UniqueFd root_;
  std::vector<std::string> places_;
};

// The pid of host process `pid` as seen inside its innermost pid namespace; 0 when it is gone.
pid_t InsidePid(pid_t pid);

// "/a/./b/../c" → "/a/c". Purely textual.
std::string NormalizePath(const std::string& path);
// True when `path` is `prefix` or below it.
bool IsBelow(const std::string& path, const std::string& prefix);

}  // namespace caisson::sandbox
