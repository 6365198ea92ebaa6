// Keeps the head and the tail of a stream within a budget while the stream passes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/outcome.h"

namespace caisson::sandbox {

class OutputBuffer {
 public:
  // Keeps everything up to `budget` bytes; beyond it the first three quarters and the last quarter.
  explicit OutputBuffer(uint64_t budget) : head_budget_(budget - budget / 4), tail_budget_(budget / 4) {}

  void Append(std::string_view bytes);
  // Returns the kept bytes, cut down to `limit` bytes from the middle, and resets the buffer.
  CapturedStream Take(uint64_t limit);
  uint64_t total() const { return total_; }

 private:
  uint64_t head_budget_;
  uint64_t tail_budget_;
  uint64_t total_ = 0;
  std::string head_;
  std::string tail_;  // at most twice its budget; cut back in one move
};

}  // namespace caisson::sandbox
