#include "service/http/call_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace caisson::service::http {

namespace {

// A low-priority thread gets a tenth of the weight of other threads when they compete for a processor, and all of an
// idle processor.
constexpr int kLowPriority = 10;
// The pool has a quarter as many low-priority threads as others, because each may hold one of the store's readers.
constexpr size_t kLowPriorityDivisor = 4;
constexpr size_t kMostRemembered = 256;

}  // namespace

CallPool::CallPool(size_t threads, size_t max_waiting_per_line)
    : max_waiting_(max_waiting_per_line), max_running_(std::max<size_t>(1, threads / 2)) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(false); });
  for (size_t i = 0; i < std::max<size_t>(1, threads / kLowPriorityDivisor); ++i)
    threads_.emplace_back([this] { Work(true); });
}

CallPool::~CallPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  heavy_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool CallPool::Try(const std::string& line, std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  const auto found = lines_.find(line);
  if (found != lines_.end() && found->second.waiting.size() >= max_waiting_) return false;
  Put(line, std::move(call));
  return true;
}

void CallPool::Add(const std::string& line, std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  Put(line, std::move(call));
}

void CallPool::Line::Charge(int64_t used_ns) {
  const int64_t now = MonotonicNanos();
  debt_ns = std::max<int64_t>(0, debt_ns - (now - as_of_ns) / kShareDivisor) + used_ns;
  as_of_ns = now;
  heavy = debt_ns > kBurstNanos;
}

void CallPool::Put(const std::string& line, std::function<void()> call) {
  Line& own = lines_[line];
  own.Charge(0);
  own.waiting.push_back(std::move(call));
  Notify(own);
}

CallPool::Lines::iterator CallPool::NextLine(bool low_priority) {
  const auto may_run = [&](const auto& line) {
    return line.second.heavy == low_priority && !line.second.waiting.empty() && line.second.running < max_running_;
  };
  const auto after = lines_.upper_bound(served_);
  const auto found = std::find_if(after, lines_.end(), may_run);
  if (found != lines_.end()) return found;
  const auto wrapped = std::find_if(lines_.begin(), after, may_run);
  return wrapped == after ? lines_.end() : wrapped;
}

void CallPool::Work(bool low_priority) {
  // On Linux a priority belongs to a thread. A thread can always lower its own priority, without any privilege.
  if (low_priority) ::setpriority(PRIO_PROCESS, 0, kLowPriority);
  std::unique_lock lock(mutex_);
  for (;;) {
    auto line = lines_.end();
    (low_priority ? heavy_changed_ : changed_).wait(lock, [&] {
      return stopping_ || (line = NextLine(low_priority)) != lines_.end();
    });
    if (stopping_) return;
    served_ = line->first;
    std::function<void()> call = std::move(line->second.waiting.front());
    line->second.waiting.pop_front();
    ++line->second.running;
    lock.unlock();
    const int64_t before = ThreadCpuNanos();
    call();
    call = nullptr;  // destroys the objects that the call holds without the lock
    const int64_t used = ThreadCpuNanos() - before;
    lock.lock();
    // The iterator is still valid, because a queue with a running call is never removed.
    --line->second.running;
    line->second.Charge(used);
    if (!line->second.waiting.empty()) Notify(line->second);
    if (lines_.size() > kMostRemembered) ForgetIdle();
  }
}

void CallPool::ForgetIdle() {
  const int64_t now = MonotonicNanos();
  for (auto line = lines_.begin(); line != lines_.end();) {
    const bool paid = line->second.debt_ns <= (now - line->second.as_of_ns) / kShareDivisor;
    line = line->second.IsIdle() && paid ? lines_.erase(line) : std::next(line);
  }
}

}  // namespace caisson::service::http
