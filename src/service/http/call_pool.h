// A fixed number of threads that run calls which may block, and a bounded line before them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace caisson::service::http {

class CallPool {
 public:
  CallPool(size_t threads, size_t max_waiting);
  ~CallPool();

  // Any thread. False when the line is full: the call will not be made.
  bool Try(std::function<void()> call);
  // For the next turn of something that was let in before: it takes a place in the line even when that is full, which
  // is bounded by the number of things let in.
  void Add(std::function<void()> call);

 private:
  void Work();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace caisson::service::http
