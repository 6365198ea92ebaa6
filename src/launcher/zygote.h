// The interpreter that runs beside the launcher so that workloads can be forked from it: started, watched, started
// again when it ends, and asked for members of the pool.
//
// It is the system's own interpreter, /usr/bin/python3, running caisson-zygote.py, which lies beside the launcher with
// the module it loads. It imports what it was told to, and then does nothing but fork: it reads no request, so nothing
// foreign ever runs in it, and what it forks are children of the launcher (CLONE_PARENT), as other supervisors are.
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
  // `modules`: names to import, separated by commas. `directory`: of the launcher's own program.
  Zygote(std::string modules, std::string directory) : modules_(std::move(modules)), directory_(std::move(directory)) {}

  // Starts it when there is none and it is time. Returns after how many milliseconds to be called again; -1: never.
  int64_t Turn(int64_t now_ms);
  // Asks it for a process that serves at `leash`; false when there is none that could be asked.
  bool Fork(UniqueFd leash);
  // A child ended. False when it was not the zygote.
  bool OnEnded(pid_t pid, int64_t now_ms);
  // Lets it go.
  void End() { control_.Reset(); }

  bool lives() const { return pid_ > 0; }
  uint64_t died() const { return died_; }

 private:
  void Start();

  const std::string modules_, directory_;
  pid_t pid_ = -1;
  UniqueFd control_;
  int64_t started_ms_ = 0, next_ms_ = 0;
  int failures_ = 0;  // in a row
  uint64_t died_ = 0;
};

}  // namespace caisson::launcher
