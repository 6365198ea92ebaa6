// The interpreter that runs beside the launcher so that workloads can be forked from it. This class starts it, watches
// it, restarts it when it ends, and asks it for members of the pool.
//
// It is the system's own interpreter, /usr/bin/python3, running caisson-zygote.py, which lies beside the launcher with
// the module it loads. It imports the configured modules, and then does nothing but fork: it reads no request, so
// untrusted code never runs in it. The processes that it forks are children of the launcher (CLONE_PARENT), like other
// supervisors.
//
// Thread: the launcher's. Nothing blocks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace caisson::launcher {

class Zygote {
 public:
  // `modules`: names to import, separated by commas. `directory`: the directory of the launcher's own program.
  Zygote(std::string modules, std::string directory) : modules_(std::move(modules)), directory_(std::move(directory)) {}

  // Starts the interpreter when none runs and the pause is over. Returns after how many milliseconds to call it again;
  // -1: never.
  int64_t Turn(int64_t now_ms);
  // Asks it for a process that serves at `control_socket`; false when no interpreter can be asked.
  bool Fork(UniqueFd control_socket);
  // Must be called when a child has ended. Returns false when the child was not the zygote.
  bool OnEnded(pid_t pid, int64_t now_ms);
  // Closes its connection, which ends it.
  void End() { control_.Reset(); }

  bool lives() const { return pid_ > 0; }
  uint64_t died() const { return died_; }

 private:
  void Start();

  const std::string modules_, directory_;
  pid_t pid_ = -1;
  UniqueFd control_;
  int64_t started_ms_ = 0, next_ms_ = 0;
  int failures_ = 0;  // consecutive
  uint64_t died_ = 0;
};

}  // namespace caisson::launcher
