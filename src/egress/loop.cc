#include "egress/loop.h"

#include <algorithm>

#include "base/clock.h"

namespace caisson::egress {

void Loop::SetDeadline(Waiter& waiter, int64_t nanos) {
  if (waiter.deadline_ != 0) deadlines_.erase({waiter.deadline_, &waiter});
  waiter.deadline_ = nanos;
  if (nanos != 0) deadlines_.insert({nanos, &waiter});
}

void Loop::Queue(Waiter& waiter) {
  if (waiter.queued_) return;
  waiter.queued_ = true;
  queue_.push_back(&waiter);
}

void Loop::Retire(std::unique_ptr<Waiter> waiter) {
  SetDeadline(*waiter, 0);
  waiter->retired_ = true;
  retired_.push_back(std::move(waiter));
}

void Loop::Step() {
  int64_t wait = -1;
  if (!deadlines_.empty())
    wait = std::max<int64_t>(0, (deadlines_.begin()->first - MonotonicNanos() + 999'999) / 1'000'000);
  if (!queue_.empty()) wait = 0;
  struct epoll_event ready[64];
  const int count = ::epoll_wait(epoll_.get(), ready, 64, static_cast<int>(std::min<int64_t>(wait, 3'600'000)));
  for (int i = 0; i < count; ++i) {
    const auto* source = static_cast<Waiter::Source*>(ready[i].data.ptr);
    if (!source->waiter->retired_) source->waiter->Ready(source->tag, ready[i].events);
  }
  std::vector<Waiter*> due;
  due.swap(queue_);
  for (Waiter* waiter : due) {
    waiter->queued_ = false;
    if (!waiter->retired_) waiter->Continue();
  }
  const int64_t now = MonotonicNanos();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Waiter* waiter = deadlines_.begin()->second;
    SetDeadline(*waiter, 0);
    waiter->Expired();
  }
  // A waiter that was queued and then retired is not called again.
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(), [](Waiter* waiter) { return waiter->retired_; }),
               queue_.end());
  retired_.clear();
}

}  // namespace caisson::egress
