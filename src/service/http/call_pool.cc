#include "service/http/call_pool.h"

#include <utility>

namespace caisson::service::http {

CallPool::CallPool(size_t threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

CallPool::~CallPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool CallPool::Try(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(call));
  }
  changed_.notify_one();
  return true;
}

void CallPool::Add(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(call));
  }
  changed_.notify_one();
}

void CallPool::Work() {
  for (;;) {
    std::function<void()> call;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      call = std::move(waiting_.front());
      waiting_.pop_front();
    }
    call();
  }
}

}  // namespace caisson::service::http
