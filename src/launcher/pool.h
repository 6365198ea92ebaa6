// Parked supervisors: processes that own their host resources (sandbox/host_resources.h), including PID 1 of the
// sandbox, before a request arrives, so that a run only has to do the work that depends on its request. Each serves one
// run and ends with it.
//
// If no member is ready, the pool may create one for the run, where that is faster than a cold start (on_demand).
//
// Size: as many members as were taken in the busiest second of the last minute, at least one and at most the number
// that the operator allows; none while memory is short. The pool creates one member at a time and then pauses for three
// times as long as the creation took, so that refilling takes at most a quarter of a CPU from the runs; an empty pool
// is refilled without a pause. The pool replaces a member that dies; when members cannot be prepared, the pauses grow.
//
// Thread: the launcher's. A function blocks only if its comment says so.
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

// Counts members taken in each second.
class Demand {
 public:
  void Taken(int64_t now_ms);
  // Members taken in the busiest of the last sixty seconds.
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
  // Creates a process that calls ServeParked with this end of its control socket. False when that is impossible now.
  using Make = std::function<bool(UniqueFd control_socket)>;

  // Watches its members in `loop`; the tag of a member is `first_tag` plus its descriptor.
  Pool(const Options& options, linux_sys::EventLoop& loop, uint32_t first_tag, Make make)
      : options_(options), loop_(loop), first_tag_(first_tag), make_(std::move(make)) {}

  static constexpr pid_t kNobody = -1, kComing = 0;
  // Gives the run to a ready member and returns its process number. Returns kComing when a member is being created for
  // the run, whose process number TakeBegun will return; otherwise kNobody.
  pid_t HandOver(const RunRequest& run_request, int64_t now_ms);
  // Returns the processes of runs that HandOver answered with kComing and that have begun since.
  std::vector<pid_t> TakeBegun(int64_t now_ms);
  // The same, but blocks until every pending run has started or failed.
  std::vector<pid_t> AwaitBegun(int64_t now_ms);
  size_t coming() const;
  // Refills or drains the pool. Returns after how many milliseconds to call it again; -1: only after an event.
  int64_t Turn(int64_t now_ms);
  // Must be called when a descriptor with one of the pool's tags becomes readable.
  void OnReadable(int control_socket, int64_t now_ms);
  // Dismisses every member; the members remove their own host resources.
  void Drain() { members_.clear(); }

  bool has(int control_socket) const { return members_.find(control_socket) != members_.end(); }
  Counts counts() const;

 private:
  struct Member {
    UniqueFd control_socket;  // closing it ends the member
    pid_t pid = -1;           // set when the member is ready
    int64_t begun_ms = 0;
    bool taken = false;  // created for a run that waits for it
  };
  // Returns the control socket of a new member; -1 when none can be created now.
  int Park(int64_t now_ms);
  bool MakeFor(const RunRequest& run_request, int64_t now_ms);
  std::vector<struct pollfd> TakenControlSockets() const;
  size_t Wanted(int64_t now_ms);
  bool IsPreparing() const;

  const Options options_;
  linux_sys::EventLoop& loop_;
  const uint32_t first_tag_;
  const Make make_;
  Demand demand_;
  std::map<int, Member> members_;  // by the descriptor of their control socket
  bool memory_is_short_ = false;
  int64_t next_look_ms_ = 0;  // when to check the available memory again
  int64_t next_ms_ = 0;       // when the next member may be created
  int failures_ = 0;          // consecutive
  std::vector<pid_t> begun_;
  Counts counts_;
};

}  // namespace caisson::launcher
