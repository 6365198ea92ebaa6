// Parked supervisors: processes that have their berth (sandbox/berth.h) before there is a request, so that a run begins
// with what only the request can decide. Each serves one run and ends with it.
//
// How many: as many as were taken in the busiest second of the last minute, at least one and at most what the operator
// allows; none while memory is short. They are made one at a time, with pauses three times as long as the work, so that
// refilling takes at most a quarter of a CPU from the runs that it is for. A member that dies is replaced; when members
// cannot be prepared, the pauses grow.
//
// Thread: the launcher's. Nothing blocks.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>

#include "base/unique_fd.h"
#include "launcher/channel.h"
#include "linux/event_loop.h"

namespace caisson::launcher {

// Counts what is taken, second by second.
class Demand {
 public:
  void Taken(int64_t now_ms);
  // Of the busiest second among the last sixty.
  size_t Busiest(int64_t now_ms) const;

 private:
  struct Second {
    int64_t number = -1;
    size_t taken = 0;
  };
  std::array<Second, 60> seconds_;
};

class Pool {
 public:
  struct Options {
    size_t most = 0;  // 0: no pool
    int64_t reserve_bytes = int64_t{256} << 20;
  };
  // Watches its members in `loop` with tags that are their descriptors behind `first_tag`.
  Pool(const Options& options, linux_sys::EventLoop& loop, uint32_t first_tag)
      : options_(options), loop_(loop), first_tag_(first_tag) {}

  // Gives the run to a member that is ready and returns its process number; -1 when there is none.
  pid_t HandOver(const Opening& opening, int64_t now_ms);
  // Refills or drains. Returns how long it may be left alone, in milliseconds; -1: until something happens.
  int64_t Turn(int64_t now_ms);
  // A descriptor with one of its tags became readable.
  void OnReadable(int leash, int64_t now_ms);
  // A child ended. False when it was not the pool's.
  bool OnEnded(pid_t pid, int64_t now_ms);
  // Lets every member go; they remove what they have made.
  void Drain();

 private:
  struct Member {
    enum class State { kPreparing, kReady, kGone };
    UniqueFd leash;  // its end ends the member
    State state = State::kPreparing;
    int64_t begun_ms = 0;
  };
  void Park(int64_t now_ms);
  size_t Wanted(int64_t now_ms);
  bool IsPreparing() const;

  const Options options_;
  linux_sys::EventLoop& loop_;
  const uint32_t first_tag_;
  Demand demand_;
  std::map<pid_t, Member> members_;
  bool memory_is_short_ = false;
  int64_t next_look_ms_ = 0;  // at the memory
  int64_t next_ms_ = 0;       // when the next member may be begun
  int failures_ = 0;          // in a row
  size_t died_ = 0;           // in all
};

}  // namespace caisson::launcher
