// Bounds the bytes of large documents in memory. A thread that needs more waits; small documents pass. Any thread.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace caisson::service {

class ByteBudget {
 public:
  static constexpr int64_t kSmall = int64_t{1} << 20;

  explicit ByteBudget(int64_t bytes) : bytes_(bytes), left_(bytes) {}

  // Returns the bytes in its destructor. A thread must not hold two.
  class Share {
   public:
    Share(ByteBudget& budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() {
      {
        const std::lock_guard lock(budget_.mutex_);
        budget_.left_ += bytes_;
      }
      budget_.changed_.notify_all();
    }

   private:
    ByteBudget& budget_;
    const int64_t bytes_;
  };

  // Waits until that many bytes are free; a larger request is reduced to the whole budget.
  Share Take(int64_t bytes) {
    const int64_t share = bytes <= kSmall ? 0 : std::min(bytes, bytes_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ >= share; });
    left_ -= share;
    return {*this, share};
  }

 private:
  const int64_t bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t left_;
};

}  // namespace caisson::service
