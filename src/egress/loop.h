// The event loop of the egress process: descriptors, deadlines and queued work, each owned by an object. Runs in one
// thread.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace caisson::egress {

class Loop;

// An object that waits for events. While events for it may be pending, give it to Loop::Retire instead of destroying
// it.
class Waiter {
 public:
  // The data that epoll reports for one of a waiter's descriptors.
  struct Source {
    Waiter* waiter = nullptr;
    unsigned tag = 0;
  };

  virtual ~Waiter() = default;
  virtual void Ready(unsigned tag, uint32_t events) = 0;
  virtual void Expired() {}
  virtual void Continue() {}

 private:
  friend class Loop;
  int64_t deadline_ = 0;
  bool queued_ = false;
  bool retired_ = false;
};

class Loop {
 public:
  Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  bool Watch(int fd, uint32_t events, Waiter::Source* source) {
    struct epoll_event event {};
    event.events = events;
    event.data.ptr = source;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  // Calls Expired once at `nanos`, unless another deadline is set before; 0 means no deadline.
  void SetDeadline(Waiter& waiter, int64_t nanos);
  int64_t deadline(const Waiter& waiter) const { return waiter.deadline_; }

  // Calls Continue after the other waiters have had their turn.
  void Queue(Waiter& waiter);

  // Destroys the waiter when no event can refer to it any more.
  void Retire(std::unique_ptr<Waiter> waiter);

  // Waits once and calls every waiter that is due.
  void Step();

 private:
  UniqueFd epoll_;
  std::set<std::pair<int64_t, Waiter*>> deadlines_;
  std::vector<Waiter*> queue_;
  std::vector<std::unique_ptr<Waiter>> retired_;
};

}  // namespace caisson::egress
