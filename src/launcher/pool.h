// Parked supervisors: processes that have their berth (sandbox/berth.h) before there is a request, PID 1 of the sandbox
// in it, so that a run begins with what only the request can decide. Each serves one run and ends with it.
//
// A run that finds none ready may have one made for it, where that is sooner than a start without (on_demand).
//
// How many: as many as were taken in the busiest second of the last minute, at least one and at most what the operator
// allows; none while memory is short. They are made one at a time, with pauses three times as long as the work, so that
// refilling takes at most a quarter of a CPU from the runs that it is for; where none is left, with none. A member that
// dies is replaced; when members cannot be prepared, the pauses grow.
//
// Thread: the launcher's. Nothing blocks that does not say so.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

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
    bool on_demand = false;
    int64_t reserve_bytes = int64_t{256} << 20;
  };
  struct Counts {
    size_t ready = 0, preparing = 0;
    uint64_t taken = 0;   // runs that got a member
    uint64_t missed = 0;  // runs that found none ready
    uint64_t died = 0;    // members that ended before they were used
  };
  // Makes a process that calls ServeParked with this end of its leash. False when it cannot now.
  using Make = std::function<bool(UniqueFd leash)>;

  // Watches its members in `loop` with tags that are their descriptors behind `first_tag`.
  Pool(const Options& options, linux_sys::EventLoop& loop, uint32_t first_tag, Make make)
      : options_(options), loop_(loop), first_tag_(first_tag), make_(std::move(make)) {}

  static constexpr pid_t kNobody = -1, kComing = 0;
  // Gives the run to a member that is ready and returns its process number; kComing when one is being made for it,
  // which TakeBegun will tell of; else kNobody.
  pid_t HandOver(const Opening& opening, int64_t now_ms);
  // The processes of runs that were given away as kComing and have begun since.
  std::vector<pid_t> TakeBegun(int64_t now_ms);
  // The same, but blocks until none is left of which that is not known.
  std::vector<pid_t> AwaitBegun(int64_t now_ms);
  size_t coming() const;
  // Refills or drains. Returns how long it may be left alone, in milliseconds; -1: until something happens.
  int64_t Turn(int64_t now_ms);
  // A descriptor with one of its tags became readable.
  void OnReadable(int leash, int64_t now_ms);
  // Lets every member go; they remove what they have made.
  void Drain() { members_.clear(); }

  bool has(int leash) const { return members_.find(leash) != members_.end(); }
  Counts counts() const;

 private:
  struct Member {
    UniqueFd leash;  // its end ends the member
    pid_t pid = -1;  // once it is ready
    int64_t begun_ms = 0;
    bool taken = false;  // it is made for a run that waits for it
  };
  // The leash of a new member; -1 when it cannot be made now.
  int Park(int64_t now_ms);
  bool MakeFor(const Opening& opening, int64_t now_ms);
  std::vector<struct pollfd> TakenLeashes() const;
  size_t Wanted(int64_t now_ms);
  bool IsPreparing() const;

  const Options options_;
  linux_sys::EventLoop& loop_;
  const uint32_t first_tag_;
  const Make make_;
  Demand demand_;
  std::map<int, Member> members_;  // by the number of their leash
  bool memory_is_short_ = false;
  int64_t next_look_ms_ = 0;  // at the memory
  int64_t next_ms_ = 0;       // when the next member may be begun
  int failures_ = 0;          // in a row
  std::vector<pid_t> begun_;
  Counts counts_;
};

}  // namespace caisson::launcher
