// How much of the disk a session's changes take. The tree is walked in small steps between other work, because it is
// hostile and may be large; a new walk begins when the last one is done and some time has passed.
//
// A limit that is measured can be passed for a moment. The free space of the file system is looked at with every step,
// so that a fast writer does not fill the disk in between.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::session {

struct LayerLimits {
  int64_t bytes = 0;
  int64_t entries = 0;
};

class LayerMeter {
 public:
  // The least that must stay free on the file system.
  static constexpr int64_t kLeastFreeBytes = int64_t{128} << 20;

  // `tree` is a directory; it stays open.
  LayerMeter(UniqueFd tree, LayerLimits limits) : tree_(std::move(tree)), limits_(limits) {}

  // Looks at a bounded number of entries. Empty: nothing is wrong. Otherwise why the limit counts as passed: more
  // bytes, more entries, no space left, or a directory that cannot be looked into.
  std::string Step(int64_t now_ms);
  // Gives up a walk that is under way, so that every directory has the mode that the workload gave it. Before the tree
  // is read by others.
  void Abandon() { levels_.clear(); }
  // When the next step is due.
  int64_t next_ms() const { return next_ms_; }

  int64_t bytes() const { return last_bytes_; }  // of the last complete walk
  int64_t limit() const { return limits_.bytes; }

 private:
  // A directory on the way. One whose mode keeps its owner out, which is this process, has another mode meanwhile.
  struct Level {
    Level() = default;
    Level(Level&&) = default;
    Level& operator=(Level&&) = delete;
    ~Level();
    std::unique_ptr<DIR, int (*)(DIR*)> entries{nullptr, ::closedir};
    UniqueFd unlocked;  // O_PATH
    mode_t mode = 0;    // that `unlocked` had
  };

  std::string Look(int directory, const char* name);
  std::string Enter(UniqueFd directory, Level level);

  UniqueFd tree_;
  LayerLimits limits_;
  std::vector<Level> levels_;
  int64_t bytes_ = 0, entries_ = 0, last_bytes_ = 0;
  int64_t walk_cost_ms_ = 0;
  int64_t locked_meanwhile_ = 0, locked_before_ = 0;  // entries that could not be looked at; and before this walk
  int64_t next_ms_ = 0;
};

}  // namespace caisson::session
