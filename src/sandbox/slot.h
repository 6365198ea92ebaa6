// A slot: the number that distinguishes one live sandbox from every other on the machine. Its cgroups are named after
// the slot and, when root starts the sandbox, its host uid and gid range is computed from it.
//
// A slot is a byte of a lock file, held with an open-file-description lock: the kernel frees it when the last process
// that holds it is gone, for any reason. The holder of a slot owns everything named after it, so it can remove the
// leftovers of a killed run without asking.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::sandbox {

class Slot {
 public:
  // Ranges of this many ids start here: above the range that systemd gives to containers, below its reserved block.
  static constexpr uid_t kFirstHostId = 1879048192;
  static constexpr uid_t kIdsPerSlot = 65536;
  static constexpr int kSlots = 4094;

  // A free slot. The lock file lives in `directory`, made private if absent.
  static Result<Slot> Acquire(const std::string& directory);
  // Slot `number` if no process holds it.
  static Result<Slot> AcquireNumber(const std::string& directory, int number);
  // Where the current user's lock file lives: /run/caisson for root, else $XDG_RUNTIME_DIR/caisson or /tmp/caisson-UID.
  static std::string DefaultDirectory();

  int number() const { return number_; }
  int fd() const { return fd_.get(); }
  uid_t first_host_id() const { return kFirstHostId + static_cast<uid_t>(number_) * kIdsPerSlot; }

 private:
  Slot(UniqueFd fd, int number) : fd_(std::move(fd)), number_(number) {}
  UniqueFd fd_;
  int number_ = -1;
};

}  // namespace caisson::sandbox
