// A fixed number of threads that run calls which may block, and a bounded queue of calls for each caller.
//
// Every caller of the service has its own queue, named by `line`. Queues take turns, and one queue never occupies all
// threads. A caller that uses more than its share of processor time runs on low-priority threads until its use is below
// the share again, so its requests delay only its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace caisson::service::http {

class CallPool {
 public:
  // A queue is heavy when its calls use more than a quarter of one processor for long. A short burst does not count.
  static constexpr int64_t kShareDivisor = 4;
  static constexpr int64_t kBurstNanos = 200'000'000;

  CallPool(size_t threads, size_t max_waiting_per_line);
  ~CallPool();

  // Any thread. Returns false when the queue is full; then the call is not made.
  bool Try(const std::string& line, std::function<void()> call);
  // Adds the next call of work that was admitted before. It enters the queue even when the queue is full; the amount of
  // admitted work bounds the excess.
  void Add(const std::string& line, std::function<void()> call);

 private:
  struct Line {
    std::deque<std::function<void()>> waiting;
    size_t running = 0;
    int64_t debt_ns = 0;   // processor time used beyond the share
    int64_t as_of_ns = 0;  // the time at which `debt_ns` was computed
    bool heavy = false;

    bool IsIdle() const { return waiting.empty() && running == 0; }
    void Charge(int64_t used_ns);
  };
  using Lines = std::map<std::string, Line>;

  void Put(const std::string& line, std::function<void()> call);
  // Returns the next queue, after the one served last, with a call that a thread of this kind may run; end() when there
  // is none.
  Lines::iterator NextLine(bool low_priority);
  void Work(bool low_priority);
  void ForgetIdle();
  void Notify(const Line& line) { (line.heavy ? heavy_changed_ : changed_).notify_one(); }

  const size_t max_waiting_;
  const size_t max_running_;  // limit for one queue
  std::mutex mutex_;
  std::condition_variable changed_, heavy_changed_;
  Lines lines_;  // queues with waiting or running calls or a debt, and a few that recently had some
  std::string served_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace caisson::service::http
