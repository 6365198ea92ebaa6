#include "sandbox/output_buffer.h"

#include <algorithm>
#include <utility>

namespace caisson::sandbox {

void OutputBuffer::Append(std::string_view bytes) {
  total_ += bytes.size();
  const size_t to_head = static_cast<size_t>(std::min<uint64_t>(bytes.size(), head_budget_ - head_.size()));
  head_.append(bytes.substr(0, to_head));
  bytes.remove_prefix(to_head);
  tail_.append(bytes);
  if (tail_.size() > 2 * tail_budget_) tail_.erase(0, tail_.size() - static_cast<size_t>(tail_budget_));
}

CapturedStream OutputBuffer::Take(uint64_t limit) {
  const size_t head_limit = static_cast<size_t>(limit - limit / 4), tail_limit = static_cast<size_t>(limit / 4);
  if (head_.size() + tail_.size() > limit || tail_.size() > tail_budget_) {
    // If nothing was cut yet, the tail continues the head: join them before cutting.
    if (total_ == head_.size() + tail_.size()) tail_.insert(0, std::exchange(head_, {}));
    if (head_.empty()) head_ = tail_.substr(0, head_limit);
    head_.resize(std::min(head_.size(), head_limit));
    tail_.erase(0, tail_.size() - std::min({tail_.size(), tail_limit, static_cast<size_t>(tail_budget_)}));
  }
  CapturedStream stream;
  stream.total_bytes = total_;
  stream.dropped_bytes = total_ - head_.size() - tail_.size();
  stream.head = std::exchange(head_, {});
  stream.tail = std::exchange(tail_, {});
  total_ = 0;
  return stream;
}

}  // namespace caisson::sandbox
